// Package monitoring holds what docs/monitoring gives to Prometheus and Grafana to Prometheus' own promtool,
// and to the metrics of a real mount that has a remote.
package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ckptfs/integration/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }

const (
	files     = "../../docs/monitoring/"
	rules     = files + "ckptfs.rules.yml"
	tests     = files + "ckptfs.rules.test.yml"
	dashboard = files + "ckptfs.dashboard.json"
)

// promtool finds it in PATH, or where scripts/setup-promtool puts it.
func promtool(t *testing.T) string {
	t.Helper()
	if p, err := exec.LookPath("promtool"); err == nil {
		return p
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(cache, "ckptfs", "tools", "bin", "promtool")
	if _, err := os.Stat(p); err != nil {
		mounttest.Missing(t, "no promtool here (scripts/setup-promtool unpacks it)")
	}
	return p
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func check(t *testing.T, in io.Reader, args ...string) {
	t.Helper()
	cmd := exec.Command(promtool(t), args...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

// Prometheus takes the rules, and each of them fires for some series and for others does not.
func TestRules(t *testing.T) {
	check(t, nil, "check", "rules", rules)
	check(t, nil, "test", "rules", tests)
	said := read(t, tests)
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(read(t, rules), -1) {
		name := regexp.QuoteMeta(m[1])
		fires := regexp.MustCompile(`(?m)alertname: ` + name + `\n +exp_alerts:\n +- exp_labels:`)
		quiet := regexp.MustCompile(`(?m)- \{eval_time: \w+, alertname: ` + name + `\}$`)
		if !fires.MatchString(said) || !quiet.MatchString(said) {
			t.Errorf("no test has %s fire, and not fire before", m[1])
		}
	}
}

// expressions are those of the dashboard, as Grafana sends them.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, dashboard)), &d); err != nil {
		t.Fatal(err)
	}
	given := strings.NewReplacer("$job", "ckptfs", "$instance", ".*", "$__rate_interval", "5m")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, given.Replace(target.Expr))
		}
	}
	return all
}

// Prometheus can parse what the dashboard asks.
func TestDashboardExpressions(t *testing.T) {
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	g := group{Name: "dashboard"}
	for i, e := range expressions(t) {
		g.Rules = append(g.Rules, rule{fmt.Sprintf("x%d", i), e})
	}
	if len(g.Rules) < 30 {
		t.Fatalf("%d expressions", len(g.Rules))
	}
	b, err := json.Marshal(map[string]any{"groups": []group{g}}) // which YAML is, too
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, nil, "check", "rules", path)
}

// Every metric that rules and dashboard name is one of a mount with a remote that was checked and pruned.
func TestMetricsOfMount(t *testing.T) {
	e := mounttest.StartEngine(t)
	m := mounttest.New(t, "--metrics-listen", "127.0.0.1:0")
	m.Join(e, "monitored", "a")
	m.Write("runs/a/1/x", mounttest.Noise(1, 1<<20))
	m.Run("push", m.Dir)
	m.Run("prune", m.Dir)
	m.Run("check", m.Dir)
	resp, err := http.Get("http://" + m.Status().Metrics + "/metrics")
	m.Must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	m.Must(err)
	check(t, bytes.NewReader(body), "check", "metrics")
	asked := read(t, rules) + strings.Join(expressions(t), "\n")
	for _, name := range regexp.MustCompile(`\b(ckptfs|process|go)_[a-z0-9_]+`).FindAllString(asked, -1) {
		if !strings.Contains(string(body), "\n"+name+" ") && !strings.Contains(string(body), "\n"+name+"{") {
			t.Errorf("no %s in the metrics of a mount", name)
		}
	}
	for _, want := range []string{"ckptfs_remote_up 1\n", "ckptfs_remote_blocked 0\n",
		"ckptfs_remote_unpublished_files 0\n", "ckptfs_last_check_problems 0\n"} {
		if !strings.Contains(string(body), "\n"+want) {
			t.Errorf("no %q in the metrics:\n%s", want, body)
		}
	}
}
