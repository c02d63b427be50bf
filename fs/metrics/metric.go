package metrics

import "github.com/prometheus/client_golang/prometheus"

// metric is one metric, and how its value is read from a T.
type metric[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// of calls send with the value; for a metric with a label, once for each value of the label.
	of func(from *T, send send)
}

// send takes a value, and for a metric with a label the value of that.
type send func(v float64, label ...string)

// desc describes a metric: its name without the prefix, what it is, its labels.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ckptfs_"+name, help, labels, nil)
}

func gauge[T any](name, help string, of func(*T) float64) metric[T] {
	return metric[T]{desc(name, help), prometheus.GaugeValue, single(of)}
}

func counter[T any](name, help string, of func(*T) float64) metric[T] {
	return metric[T]{desc(name, help), prometheus.CounterValue, single(of)}
}

// counters is a counter that has a label.
func counters[T any](name, label, help string, of func(*T, send)) metric[T] {
	return metric[T]{desc(name, help, label), prometheus.CounterValue, of}
}

func single[T any](of func(*T) float64) func(*T, send) {
	return func(from *T, send send) { send(of(from)) }
}

// sendAll sends what from says of each metric.
func sendAll[T any](out chan<- prometheus.Metric, metrics []metric[T], from *T) {
	for _, m := range metrics {
		m.of(from, func(v float64, label ...string) {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, v, label...)
		})
	}
}
