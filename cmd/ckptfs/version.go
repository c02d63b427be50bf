package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"ckptfs/cas/simd"
	"ckptfs/cmd/ckptfs/args"
	"ckptfs/fs/metrics"
	"ckptfs/fs/tree"
)

// version is set by the build: -ldflags "-X main.version=…".
var version = "dev"

const platform = runtime.GOOS + "/" + runtime.GOARCH

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the program's version, the store format it writes, and the kernels it runs here",
		Args:  args.None,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision,omitempty"`
				Store    int    `json:"store_format"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
				Kernels  string `json:"kernels"`
			}{version, revision(), tree.Version, runtime.Version(), platform, simd.Now().String()}
			return a.show(v, func(w io.Writer) {
				fmt.Fprintf(w, "ckptfs %s, store format %d, %s, %s, %s kernels\n",
					v.Version, v.Store, v.Go, v.Platform, v.Kernels)
			})
		},
	}
}

// revision is the commit that the program was built from, if the build recorded it.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

func built() metrics.Build { return metrics.Build{Version: version, Revision: revision()} }
