package text

import (
	"strings"
	"testing"
	"time"

	"ckptfs/fs/control"
)

func TestRemote(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	one, none := 1, 0
	waits := []control.Skip{{Path: "runs/a", Reason: "open"}, {Path: "runs/b", Reason: "open"}}
	for want, r := range map[string]*control.RemoteStatus{
		"":                       nil,
		"s3://m/t as a.0":        {URL: "s3://m/t", Writer: "a.0", Conflicts: &none},
		"https://m/t, only read": {URL: "https://m/t", ReadOnly: true},
		"s3://m/t as a.0, 1 name with several versions: see .ckptfs/conflicts": {URL: "s3://m/t",
			Writer: "a.0", Conflicts: &one},
		"s3://m/t as a.0; offline since 2026-07-01 12:00:00, names are as they were seen last: " +
			"no answer; wait": {URL: "s3://m/t", Writer: "a.0",
			Offline: &control.Offline{Since: at, Why: "no answer", Do: "wait"}},
		"s3://m/t as a.0, 2 files of 9 B not published: runs/a (open), and 2 names more": {URL: "s3://m/t",
			Writer: "a.0", Unpublished: &control.Unpublished{Files: 2, Bytes: 9}, Waiting: waits,
			MoreWaiting: 1},
		"s3://m/t as a.0, 3 removals not published": {URL: "s3://m/t", Writer: "a.0",
			Unpublished: &control.Unpublished{Removed: 3}},
		"s3://m/t as a.0, not published: runs/a (open)": {URL: "s3://m/t", Writer: "a.0",
			Waiting: waits[:1]},
	} {
		if got := Remote(r); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	hostile := &control.RemoteStatus{Offline: &control.Offline{Why: "\x1b[2J"}}
	if strings.Contains(Remote(hostile), "\x1b") {
		t.Error("what a server said reaches the terminal as it is")
	}
}
