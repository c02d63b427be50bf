package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/s3/s3test"
	"ckptfs/integration/engine"
	"ckptfs/integration/mounttest"
)

// Two stores join one remote as two writers.
func TestAdd(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := mounttest.New(t), mounttest.New(t)
	url := e.URL("team/a")
	added := func(m *mounttest.Mount, flags ...string) (out struct {
		URL, ID, Writer string
		Made            bool
	}) {
		t.Helper()
		args := []string{"remote", "add", url, m.Dir, "--endpoint", e.Endpoint, "--json"}
		m.JSON(&out, append(args, flags...)...)
		return out
	}
	first, second := added(a, "--writer", "GPU 1"), added(b, "--writer", "gpu-2")
	if !first.Made || second.Made || first.ID != second.ID || first.Writer == second.Writer ||
		!strings.HasPrefix(first.Writer, "gpu-1.") {
		t.Fatalf("%+v, then %+v", first, second)
	}
	if again := added(a, "--endpoint", e.Endpoint+"/"); again.Writer != first.Writer || again.Made {
		t.Fatalf("added again: %+v, want writer %s", again, first.Writer)
	}
	var status struct{ Writers []string }
	a.JSON(&status, "remote", "status", a.Dir, "--json")
	if len(status.Writers) != 2 {
		t.Fatalf("writers are %q", status.Writers)
	}
	said := b.Run("remote", "status", b.Dir)
	if !strings.Contains(said, "as "+second.Writer) || !strings.Contains(said, "so does "+first.Writer) {
		t.Fatalf("status says %s", said)
	}
	other, code := a.RunFails("remote", "add", e.URL("team/b"), a.Dir, "--endpoint", e.Endpoint)
	if code != 1 || !strings.Contains(other, "has a remote already, "+url) {
		t.Fatalf("joining a second remote: %d, %s", code, other)
	}
	other, code = a.RunFails("remote", "add", url, a.Dir)
	if code != 1 || !strings.Contains(other, "has a remote already, "+url+" --endpoint "+e.Endpoint+":") {
		t.Fatalf("joining it with other flags: %d, %s", code, other)
	}
	file, err := os.ReadFile(filepath.Join(a.Store, "remote"))
	if err != nil || strings.Contains(string(file), engine.Secret) ||
		strings.Contains(string(file), engine.User) {
		t.Fatalf("%s, %v", file, err)
	}
	a.Remount()
	a.JSON(&status, "remote", "status", a.Dir, "--json")
	if err := os.WriteFile(filepath.Join(a.Store, "remote"), file[:len(file)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	said, code = a.RunFails("remote", "status", a.Dir)
	if code != 6 || !strings.Contains(said, filepath.Join(a.Store, "remote")) {
		t.Fatalf("status of what is damaged: %d, %s", code, said)
	}
}

func TestAddRefused(t *testing.T) {
	e := mounttest.StartEngine(t)
	m := mounttest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // whose backlog takes connections
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	liar := httptest.NewServer(&s3test.Engine{Bucket: forgetful{&bucket.Mem{}}})
	defer liar.Close()
	url, nobody := "s3://models/team", "http://"+l.Addr().String()
	mute := "http://" + silent.Addr().String()
	advice := map[string]string{"another secret": "look at AWS_SECRET_ACCESS_KEY",
		"no credentials": "set AWS_ACCESS_KEY_ID", "no bucket": "make the bucket first"}
	for _, c := range []struct {
		name string
		args []string
		env  string
		code int
		want string
	}{
		{"nobody there", []string{url, m.Dir, "--endpoint", nobody}, "", 11, "cannot be reached"},
		{"nobody answers", []string{url, m.Dir, "--endpoint", mute}, "", 11, "does not answer"},
		{"another secret", []string{url, m.Dir, "--endpoint", e.Endpoint}, "AWS_SECRET_ACCESS_KEY=wrong", 12, "access denied"},
		{"no credentials", []string{url, m.Dir, "--endpoint", e.Endpoint}, "AWS_ACCESS_KEY_ID=", 12, "access denied"},
		{"no bucket", []string{"s3://others/team", m.Dir, "--endpoint", e.Endpoint}, "", 1, "no such bucket"},
		{"an engine that lies", []string{"s3://bucket/team", m.Dir, "--endpoint", liar.URL}, "", 13, "created only where there is none"},
		{"no store", []string{url, t.TempDir(), "--endpoint", e.Endpoint}, "", 3, "no ckptfs mount"},
		{"no URL", []string{"models/team", m.Dir}, "", 2, "s3://BUCKET/PREFIX"},
		{"a password in the URL", []string{"s3://me:hidden@models/team", m.Dir}, "", 2, "no password"},
		{"no TLS", []string{url, m.Dir, "--endpoint", "http://s3.example.org"}, "", 2, "--insecure-http"},
		{"one argument", []string{url}, "", 2, "takes URL STORE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
				t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			}
			said, code := m.RunFails(append([]string{"remote", "add"}, c.args...)...)
			if code != c.code || !strings.Contains(said, c.want) || strings.Contains(said, "hidden") ||
				strings.Contains(said, engine.Secret) {
				t.Fatalf("exit status %d, %s; want %d, %q", code, said, c.code, c.want)
			}
			if !strings.Contains(said, advice[c.name]) {
				t.Errorf("%s; want %q", said, advice[c.name])
			}
			if _, err := os.Stat(filepath.Join(m.Store, "remote")); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the store has a remote: %v", err)
			}
		})
	}
	said, code := m.RunFails("remote", "status", m.Dir)
	if code != 1 || !strings.Contains(said, "remote add URL") {
		t.Fatalf("status without a remote: %d, %s", code, said)
	}
}

// A command says of an engine that takes requests and is silent that it does not answer.
func TestSilentEngine(t *testing.T) {
	e := mounttest.StartEngine(t)
	at, err := url.Parse(e.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var silent atomic.Bool
	back := make(chan struct{})
	pass := httputil.NewSingleHostReverseProxy(at)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			<-back
			return
		}
		pass.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	m := mounttest.New(t)
	m.Run("remote", "add", e.URL("team"), m.Dir, "--endpoint", proxy.URL)
	save(t, filepath.Join(m.Dir, "runs/x/1/f"), []byte("f"))
	silent.Store(true)
	for _, args := range [][]string{{"push"}, {"fetch"}, {"remote", "status"}, {"prune", "--remote"}} {
		said, code := m.RunFails(append(args, m.Dir)...)
		if code != 11 {
			t.Errorf("%s: %d, %s", args, code, said)
		}
	}
	silent.Store(false)
	close(back)
	m.Run("push", m.Dir)
}

// forgetful is an engine that drops the headers of conditions.
type forgetful struct{ *bucket.Mem }

func (f forgetful) Put(ctx context.Context, key string, body bucket.Body,
	_ bucket.Cond) (bucket.Version, error) {
	return f.Mem.Put(ctx, key, body, bucket.Cond{})
}

func TestValidateAndPolicy(t *testing.T) {
	e := mounttest.StartEngine(t)
	m := mounttest.New(t)
	said := m.Run("remote", "validate", e.URL(""), "--endpoint", e.Endpoint, "--full")
	if strings.Contains(said, "FAILED") || !strings.Contains(said, "listings have several pages") {
		t.Fatal(said)
	}
	for _, role := range []string{"reader", "writer", "collector", "bucket"} {
		said := m.Run("remote", "policy", role, e.URL("x"))
		if !strings.Contains(said, fmt.Sprintf("arn:aws:s3:::%s/x/", e.Bucket)) {
			t.Errorf("%s: %s", role, said)
		}
		var policy struct{ Statement []any }
		if m.JSON(&policy, "remote", "policy", role, e.URL("x"), "--json"); len(policy.Statement) == 0 {
			t.Errorf("%s: no statements", role)
		}
	}
	said, code := m.RunFails("remote", "publish")
	if code != 2 || !strings.Contains(said, `no command "publish"`) {
		t.Errorf("a command that is none: %d, %s", code, said)
	}
	said, code = m.RunFails("remote", "policy", "owner", e.URL("x"))
	if code != 2 || !strings.Contains(said, "reader") {
		t.Errorf("%d, %s", code, said)
	}
}
