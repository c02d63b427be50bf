package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// described is the version that the tests make a release of.
const described = "v0.0.0-test"

// made is a release that all tests look at, in the folder of TestMain. It is made once.
var made = sync.OnceValues(func() (*release, error) {
	r := &release{repository: "..", place: filepath.Join(os.Getenv("PACKAGING_MADE"), "dist")}
	return r, run(r, described)
})

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "ckptfs-release-")
	if err != nil {
		panic(err)
	}
	os.Setenv("PACKAGING_MADE", dir)
	os.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// get is the release's one file whose name matches.
func get(t *testing.T, pattern string) string {
	t.Helper()
	r, err := made()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(r.place, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %d files, %v", pattern, len(found), err)
	}
	return found[0]
}

// must runs a program, and returns what it printed.
func must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

func TestVersions(t *testing.T) {
	for _, c := range []struct{ number, described, python, linux string }{
		{"0.1.0", "v0.1.0", "0.1.0", "0.1.0"},
		{"0.2.0", "v0.1.0-3-g12ab34c", "0.2.0.dev0+v0.1.0.3.g12ab34c", "0.2.0~dev+v0.1.0.3.g12ab34c"},
		{"0.1.0", "v0.1.0-dirty", "0.1.0.dev0+v0.1.0.dirty", "0.1.0~dev+v0.1.0.dirty"},
		{"0.1.0", "12ab34c", "0.1.0.dev0+g12ab34c", "0.1.0~dev+g12ab34c"},
		{"0.1.0", "12ab34c-dirty", "0.1.0.dev0+g12ab34c.dirty", "0.1.0~dev+g12ab34c.dirty"},
		{"0.1.0", "dev", "0.1.0.dev0+dev", "0.1.0~dev+dev"},
		{"0.1.0", "v0.2.0", "", ""}, // a tag that the package does not have
		{"", "v0.2.0", "", ""},
		{"0.1.0", "", "", ""},
	} {
		v, err := newVersion(c.number, c.described)
		if v.python != c.python || v.linux != c.linux || (err == nil) == (c.python == "") {
			t.Errorf("newVersion(%q, %q): %+v, %v", c.number, c.described, v, err)
		}
	}
}

// What is made of the same sources in another folder, at another time, in another environment, is the same to
// the last byte.
func TestReproducible(t *testing.T) {
	first := get(t, sumsFile)
	dir := t.TempDir()
	sources := filepath.Join(dir, "elsewhere", "sources")
	for _, part := range []string{"cas", "cmd", "docs/monitoring", "formats", "fs", "index", "packaging/kubernetes", "scripts"} {
		if err := os.CopyFS(filepath.Join(sources, part), os.DirFS(filepath.Join("..", part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "README.md", "packaging/reload"} {
		must(t, exec.Command("cp", filepath.Join("..", name), filepath.Join(sources, name)))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "dist")
	cmd := exec.Command("sh", "-c", `umask 077; exec "$@"`, "sh", self, "-test.run=TestAgain")
	cmd.Env = append(os.Environ(), "TZ=Asia/Tokyo", "LC_ALL=C", "TMPDIR="+dir, "GOAMD64=v3", "GOFLAGS=-race",
		"HOSTNAME=other", "PACKAGING_SOURCES="+sources, "PACKAGING_OUT="+out)
	must(t, cmd)
	must(t, exec.Command("diff", first, filepath.Join(out, sumsFile)))
}

// TestAgain makes the release that TestReproducible compares, in a process of its own.
func TestAgain(t *testing.T) {
	sources := os.Getenv("PACKAGING_SOURCES")
	if sources == "" {
		t.Skip("TestReproducible runs it")
	}
	if err := run(&release{repository: sources, place: os.Getenv("PACKAGING_OUT")}, described); err != nil {
		t.Fatal(err)
	}
}

// A folder is replaced if it is a release, and no other; and by a whole release only.
func TestReplaces(t *testing.T) {
	dir := t.TempDir()
	r := &release{repository: "..", place: filepath.Join(dir, "dist")}
	mine := filepath.Join(r.place, "mine")
	if err := put(mine, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.prepare(described); !errors.Is(err, os.ErrExist) {
		t.Errorf("a folder of other things: %v", err)
	}
	if err := put(filepath.Join(r.place, sumsFile), nil); err != nil {
		t.Fatal(err)
	}
	if err := r.prepare(described); err != nil {
		t.Fatal(err)
	}
	r.clear() // as after an error
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	if err := errors.Join(r.prepare(described), r.publish()); err != nil {
		t.Fatal(err)
	}
	r.clear()
	if _, err := os.Stat(mine); err == nil {
		t.Error("what was in the former release is still there")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left beside the release: %v", left)
	}
}

func TestSums(t *testing.T) {
	sums := get(t, sumsFile)
	cmd := exec.Command("sha256sum", "--check", "--strict", sumsFile)
	cmd.Dir = filepath.Dir(sums)
	checked := strings.Count(must(t, cmd), ": OK\n")
	files := 0
	err := filepath.WalkDir(cmd.Dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return err
	})
	if err != nil || checked != files-1 {
		t.Errorf("%d of %d files have a checksum, %v", checked, files, err)
	}
}

// The bill of materials has each module of the program, and Go's library.
func TestBillOfMaterials(t *testing.T) {
	b, err := os.ReadFile(get(t, "*-linux-amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := json.Unmarshal(b, &bom); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, c := range *bom.Components {
		has[c.Name+"@"+c.Version] = c.PackageURL != ""
	}
	info, err := buildinfo.ReadFile(get(t, "*-linux-amd64"))
	if err != nil {
		t.Fatal(err)
	}
	wants := []string{"std@" + info.GoVersion}
	for _, m := range info.Deps {
		wants = append(wants, m.Path+"@"+m.Version)
	}
	for _, want := range wants {
		if !has[want] {
			t.Errorf("there is no %s", want)
		}
	}
	if len(info.Deps) < 10 {
		t.Errorf("the program has %d modules", len(info.Deps))
	}
}

// The examples for Kubernetes have no field that it does not know, and propagate the mount.
func TestKubernetes(t *testing.T) {
	kinds := map[string]func() any{
		"apps/v1 DaemonSet":        func() any { return new(appsv1.DaemonSet) },
		"v1 Pod":                   func() any { return new(corev1.Pod) },
		"v1 PersistentVolumeClaim": func() any { return new(corev1.PersistentVolumeClaim) },
	}
	seen := map[string]bool{}
	for _, path := range []string{"kubernetes/daemonset.yaml", "kubernetes/sidecar.yaml"} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		both := map[corev1.MountPropagationMode]bool{}
		for _, doc := range strings.Split(string(b), "\n---\n") {
			var kind struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
				t.Fatal(err)
			}
			name := kind.APIVersion + " " + kind.Kind
			if kinds[name] == nil {
				t.Fatalf("%s: %q is not known here", path, name)
			}
			object := kinds[name]()
			if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
				t.Errorf("%s: %s: %v", path, name, err)
			}
			seen[name] = true
			var pod corev1.PodSpec
			switch object := object.(type) {
			case *appsv1.DaemonSet:
				pod = object.Spec.Template.Spec
				if object.Spec.Selector.MatchLabels["app"] != object.Spec.Template.Labels["app"] {
					t.Errorf("%s: the selector does not select the template", path)
				}
			case *corev1.Pod:
				pod = object.Spec
			}
			volumes := map[string]bool{}
			for _, v := range pod.Volumes {
				volumes[v.Name] = true
			}
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				for _, m := range c.VolumeMounts {
					if !volumes[m.Name] {
						t.Errorf("%s: %s: there is no volume %s", path, name, m.Name)
					}
					if m.MountPropagation != nil {
						both[*m.MountPropagation] = true
					}
				}
				if c.Name == "ckptfs" && (c.SecurityContext == nil || !*c.SecurityContext.Privileged) {
					t.Errorf("%s: only a privileged container may propagate a mount", path)
				}
			}
		}
		if !both[corev1.MountPropagationBidirectional] || !both[corev1.MountPropagationHostToContainer] {
			t.Errorf("%s: the mount is not propagated: %v", path, both)
		}
	}
	if len(seen) != len(kinds) {
		t.Errorf("examples: %v", seen)
	}
}

func TestTag(t *testing.T) {
	if tag := (version{python: "0.1.0.dev0+g1"}).tag(); tag != "0.1.0.dev0-g1" {
		t.Error(tag)
	}
}
