package remote

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What the flags of a mount say is checked before anything is mounted.
func TestMountFlags(t *testing.T) {
	for args, want := range map[string]string{
		"": "",
		"--mirror=https://cache.example.org/team --remote-cache=10GiB --remote-timeout=30s": "",
		"--keep-free=50% --remote-cache=0": "",
		"--keep-free=51%":                  "at most 50%",
		"--keep-free=100%":                 "at most 50%",
		"--mirror=s3://models/team":        "--mirror",
		"--mirror=https://me:hidden@h/":    "no password",
		"--remote-timeout=1ms":             "--remote-timeout",
		"--remote-poll=1ms":                "--remote-poll",
		"--push=never":                     "--push",
		"--push-rate=1KiB":                 "--push-rate",
		"--pull-rate=1KiB --push-rate=1GB": "--pull-rate",
	} {
		var m MountFlags
		f := pflag.NewFlagSet("mount", pflag.ContinueOnError)
		m.Add(f)
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		err := m.Check()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
