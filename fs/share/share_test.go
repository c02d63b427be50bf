package share

import "testing"

// What lies in no run is not shared, nor is what begins with a dot or is unfinished, but for a pull's names
// and those that formats give to finished files.
func TestShares(t *testing.T) {
	for p, want := range map[string]bool{
		"runs": false, "runs/x": true, "runs/x/1/f": true, "exports/x": false, "runsx/1": false,
		"runs/.x": false, "runs/x/.git/f": false, "runs/x/tmp-1": false,
		"runs/x/1.orbax-checkpoint-tmp-2/f": false, "runs/x/" + pulling + "7": true,
		"runs/x/" + aside + "7": true, "runs/x/.git/" + pulling + "7": false,
		"runs/x/1/.metadata": true, "runs/x/1/.metadata.tmp": false, "runs/x/1/w/.zarray": true,
	} {
		if got := Shares(p); got != want {
			t.Errorf("%s: %v", p, got)
		}
	}
}
