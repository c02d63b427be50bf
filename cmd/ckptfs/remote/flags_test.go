package remote

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What is to be kept free leaves room on the disk.
func TestKeepFree(t *testing.T) {
	for text, fits := range map[string]bool{"": true, "0": true, "1GiB": true, "90%": true, "8EiB": false,
		"7EiB": false} {
		var m MountFlags
		m.Add(pflag.NewFlagSet("mount", pflag.ContinueOnError))
		if text != "" {
			if err := m.keepFree.Set(text); err != nil {
				if fits {
					t.Error(err)
				}
				continue
			}
		}
		n, err := m.KeepFree(t.TempDir())
		if (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "at most 90%") || n < 0 {
			t.Errorf("--keep-free %s: %d, %v", text, n, err)
		}
	}
}

// What the flags of a mount say is checked before anything is mounted.
func TestMountFlags(t *testing.T) {
	for args, want := range map[string]string{
		"": "",
		"--mirror=https://cache.example.org/team --remote-cache=10GiB --remote-timeout=30s": "",
		"--keep-free=90% --remote-cache=0":                                                  "",
		"--keep-free=90.1%":                                                                 "at most 90%",
		"--keep-free=100%":                                                                  "at most 90%",
		"--remote-cache=1":                                                                  "at least 1MiB",
		"--mirror=s3://models/team":                                                         "--mirror",
		"--mirror=https://me:hidden@h/":                                                     "no password",
		"--remote-timeout=1ms":                                                              "--remote-timeout",
		"--remote-poll=1ms":                                                                 "--remote-poll",
		"--push=never":                                                                      "--push",
		"--push-rate=1KiB":                                                                  "--push-rate",
		"--pull-rate=1KiB --push-rate=1GB":                                                  "--pull-rate",
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
