package runs

import (
	"maps"
	"slices"
	"strings"
)

// Metric is a number that a step says of itself.
type Metric struct {
	Name  string
	Value float64
}

// Metrics are a step's, each once, in the order of their names. There may be very many steps of few metrics
// each: they take a tenth of a map's memory.
type Metrics []Metric

// MetricsOf are those of a map; nil for none.
func MetricsOf[V ~float64](all map[string]V) Metrics {
	if len(all) == 0 {
		return nil
	}
	m := make(Metrics, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m = append(m, Metric{name, float64(all[name])})
	}
	return m
}

// Get is the value of a metric. False for one that is not there.
func (m Metrics) Get(name string) (float64, bool) {
	i, ok := slices.BinarySearchFunc(m, name, func(m Metric, name string) int {
		return strings.Compare(m.Name, name)
	})
	if !ok {
		return 0, false
	}
	return m[i].Value, true
}
