package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ckptfs/fs/control"
)

// collector asks the source at each scrape.
type collector struct {
	src    Source
	survey *survey
}

func newCollector(ctx context.Context, src Source) *collector {
	return &collector{
		src: src,
		survey: &survey{ctx: ctx, now: time.Now,
			count: func(ctx context.Context) (*whole, error) { return look(ctx, src) }},
	}
}

// whole is what is counted of a whole store.
type whole struct {
	control.Stats
	torn int // steps
}

// look counts it.
func look(ctx context.Context, src Source) (*whole, error) {
	st, err := src.Stats(ctx)
	if err != nil {
		return nil, err
	}
	w := &whole{Stats: *st}
	list, err := src.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list.Runs {
		w.torn += r.Torn
	}
	return w, nil
}

var (
	up        = desc("up", "1 when the volume answered this scrape in time.")
	surveyAge = desc("survey_age_seconds", "Age of the count that the metrics of the whole store are from.")
)

// Describe names nothing: what there is depends on what the volume answers. Nothing else registers with this
// registry.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks and sends.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	answered := 0.0
	if st := c.status(); st != nil {
		answered = 1
		sendAll(out, ofStatus, st)
	}
	out <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, answered)
	if st, at := c.survey.get(); st != nil {
		age := c.survey.now().Sub(at).Seconds()
		out <- prometheus.MustNewConstMetric(surveyAge, prometheus.GaugeValue, age)
		sendAll(out, ofStats, st)
	}
	sendAll(out, ofCounters, c.src.Counters())
}

// status asks for the volume's status; nil when it does not answer in time.
func (c *collector) status() *control.Status {
	ctx, cancel := context.WithTimeout(c.survey.ctx, patience)
	defer cancel()
	answer := make(chan *control.Status, 1)
	go func() {
		st, err := c.src.Status(ctx)
		if err != nil {
			st = nil
		}
		answer <- st
	}()
	select {
	case st := <-answer:
		return st
	case <-ctx.Done():
		return nil
	}
}
