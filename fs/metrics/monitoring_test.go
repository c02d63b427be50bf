package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const monitoring = "../../docs/monitoring/"

func page(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	// a metric's name, but not that of a label, a file or a job
	named = regexp.MustCompile(`\b(ckptfs|process|go)_[a-z0-9_]+`)
	// what the rules name besides is Prometheus' own: up
	alert = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
)

// Rules, their tests and the dashboard name no metric that the program does not export.
func TestMonitoringNamesMetrics(t *testing.T) {
	out := scrape(t, &sample{})
	for _, file := range []string{"ckptfs.rules.yml", "ckptfs.rules.test.yml", "ckptfs.dashboard.json"} {
		used := named.FindAllString(page(t, monitoring+file), -1)
		if len(used) < 15 {
			t.Errorf("%s: %q", file, used)
		}
		for _, m := range used {
			if !strings.Contains(out, "# TYPE "+m+" ") {
				t.Errorf("%s: there is no %s", file, m)
			}
		}
	}
}

// The document has each alert, and no other.
func TestAlertsDocumented(t *testing.T) {
	var rules, said []string
	for _, m := range alert.FindAllStringSubmatch(page(t, monitoring+"ckptfs.rules.yml"), -1) {
		rules = append(rules, m[1])
	}
	row := regexp.MustCompile("(?m)^\\| `(Ckptfs\\w+)` \\|")
	for _, m := range row.FindAllStringSubmatch(page(t, "../../docs/metrics.md"), -1) {
		said = append(said, m[1])
	}
	if !slices.Equal(rules, said) || len(rules) == 0 {
		t.Errorf("the rules are\n%q and documented\n%q", rules, said)
	}
}

type place struct{ H, W, X, Y int }

type source struct{ Type, UID string }

// dashboard is what the test knows of Grafana's model.
type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     place
		Datasource  source
		Targets     []struct {
			RefID, Expr, LegendFormat string
			Datasource                source
		}
	}
}

// A dashboard that Grafana would take, as far as that can be told without one.
func TestDashboard(t *testing.T) {
	var d dashboard
	dec := json.NewDecoder(strings.NewReader(page(t, monitoring+"ckptfs.dashboard.json")))
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if dec.More() || d.Title == "" || d.UID == "" || len(d.Panels) < 20 {
		t.Fatalf("not one dashboard: %q, %q, %d panels", d.Title, d.UID, len(d.Panels))
	}
	variables := map[string]string{"__rate_interval": "a built-in"}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	if variables["datasource"] != "datasource" {
		t.Error("no variable chooses the data source")
	}
	given := source{"prometheus", "${datasource}"}
	used := regexp.MustCompile(`\$\{?(\w+)`)
	ids, titles := map[int]bool{}, map[string]bool{}
	var places []place
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || titles[p.Title] || p.Title == "" {
			t.Errorf("panel %d, %q: id or title is missing or not its own", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: does not fit: %+v", p.Title, g)
		}
		for _, o := range places {
			if g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				t.Errorf("%s: %+v lies over %+v", p.Title, g, o)
			}
		}
		places = append(places, g)
		if p.Type == "row" {
			continue
		}
		if p.Datasource != given || len(p.Targets) == 0 {
			t.Errorf("%s: data source %+v, %d targets", p.Title, p.Datasource, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if target.Datasource != given || target.Expr == "" || refs[target.RefID] || target.RefID == "" {
				t.Errorf("%s: %+v", p.Title, target)
			}
			refs[target.RefID] = true
			for _, m := range used.FindAllStringSubmatch(target.Expr, -1) {
				if variables[m[1]] == "" {
					t.Errorf("%s: there is no variable %s", p.Title, m[1])
				}
			}
			if selected := `{job=~"$job", instance=~"$instance"}`; strings.Count(target.Expr, selected) !=
				len(named.FindAllString(target.Expr, -1)) {
				t.Errorf("%s: %s: not each metric is of the chosen stores", p.Title, target.Expr)
			}
		}
	}
}

// Every metric has a panel, but for those that a label or a bound tells of.
func TestDashboardIsWhole(t *testing.T) {
	shown := page(t, monitoring+"ckptfs.dashboard.json")
	let := []string{"ckptfs_remote_manual", "ckptfs_hydrated_files_total", "ckptfs_evicted_files_total",
		"ckptfs_packed_files_total", "ckptfs_reads_total", "ckptfs_segment_reads_total",
		"ckptfs_remote_unpublished_files"}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (ckptfs_[a-z_]+) `).
		FindAllStringSubmatch(scrape(t, &sample{}), -1) {
		if !strings.Contains(shown, m[1]+"{") && !slices.Contains(let, m[1]) {
			t.Errorf("no panel has %s", m[1])
		}
	}
}
