// Package metrics gives what a volume holds, does and did in the form that Prometheus asks for.
// docs/metrics.md lists every metric by name and unit; a test holds the two together.
//
// What is cheap to know is asked for at each scrape. What is not, the sums over the whole store, is counted
// in the background when it is older than its own cost allows (see survey), and a scrape gets the last count,
// with its age.
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"ckptfs/fs/control"
)

// Source is what is measured; *volume.Requests is one.
type Source interface {
	Stats(ctx context.Context) (*control.Stats, error)
	Status(ctx context.Context) (*control.Status, error)
	Runs(ctx context.Context) (*control.RunList, error)
	Counters() *control.Counters
}

// Build says which program runs.
type Build struct {
	Version  string
	Revision string
}

// Handler answers scrapes until ctx ends. It keeps a registry of its own: nothing is registered globally.
func Handler(ctx context.Context, src Source, b Build) http.Handler {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ckptfs_build_info", Help: "1; the labels say which program runs.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go": runtime.Version()},
	})
	info.Set(1)
	reg.MustRegister(info, newCollector(ctx, src),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return promhttp.HandlerFor(reg,
		promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError})
}

// patience is how long a scrape waits for the volume's answer. A volume that is slower than that has worse to
// tell.
const patience = 5 * time.Second
