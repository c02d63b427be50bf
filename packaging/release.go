package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// arches are the processors that a release is for, as Go names them.
var arches = []string{"amd64", "arm64"}

// release is what all its files have in common.
type release struct {
	repository string // the sources
	out        string // the result, beside the place of which it is made
	place      string // the folder that it becomes
	work       string // a folder for what is between them
	version    version
	time       time.Time // of all that is packed
}

// version is one version in the words of each kind of package.
type version struct {
	described string // git describe: what `ckptfs version` prints
	python    string // 0.1.0; between releases 0.1.0.dev0+g492af55c
	linux     string // 0.1.0; between releases 0.1.0~dev+g492af55c, which comes before 0.1.0
}

// tag is the version of an image, where a plus is not allowed.
func (v version) tag() string { return strings.ReplaceAll(v.python, "+", "-") }

var notLocal = regexp.MustCompile(`[^A-Za-z0-9]+`)

// newVersion takes the number in the Python package, of the next release, and what git says. A commit with a
// tag is the release that the tag names.
func newVersion(number, described string) (version, error) {
	switch {
	case number == "" || described == "":
		return version{}, errors.New("a release needs a version: give -version, and __version__ in scripts/python")
	case described == "v"+number:
		return version{described, number, number}, nil
	case regexp.MustCompile(`^v\d+(\.\d+)*$`).MatchString(described):
		return version{}, fmt.Errorf("the tag is %s, and scripts/python/ckptfs says %s", described, number)
	}
	local := strings.Trim(notLocal.ReplaceAllString(strings.ToLower(described), "."), ".")
	if regexp.MustCompile(`^[0-9a-f]+(\.dirty)?$`).MatchString(local) {
		local = "g" + local
	}
	return version{described, number + ".dev0+" + local, number + "~dev+" + local}, nil
}

var pythonVersion = regexp.MustCompile(`(?m)^__version__ = "(.*)"$`)

// prepare finds out what is to be made, and makes the folders for it.
func (r *release) prepare(described string) error {
	init, err := os.ReadFile(filepath.Join(r.repository, pythonPackage, "__init__.py"))
	if err != nil {
		return err
	}
	number := ""
	if m := pythonVersion.FindSubmatch(init); m != nil {
		number = string(m[1])
	}
	if r.version, err = newVersion(number, described); err != nil {
		return err
	}
	if r.time, err = r.when(); err != nil {
		return err
	}
	if r.place, err = filepath.Abs(r.place); err != nil {
		return err
	}
	_, there := os.Lstat(r.place)
	if _, err := os.Stat(filepath.Join(r.place, sumsFile)); there == nil && err != nil {
		return fmt.Errorf("%s is there, and no release, which has a %s: %w", r.place, sumsFile, os.ErrExist)
	}
	if r.work, err = os.MkdirTemp("", "ckptfs-packaging-"); err != nil {
		return err
	}
	r.out, err = os.MkdirTemp(filepath.Dir(r.place), ".dist-")
	return err
}

// publish puts what was made in its place, where a former release may be.
func (r *release) publish() error {
	if err := sums(r.out); err != nil {
		return err
	}
	if err := os.Chmod(r.out, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(r.place); err != nil {
		return err
	}
	return os.Rename(r.out, r.place)
}

// clear removes what is not published.
func (r *release) clear() {
	for _, dir := range []string{r.work, r.out} {
		if dir != "" {
			os.RemoveAll(dir)
		}
	}
}

// when is SOURCE_DATE_EPOCH, else the time of the commit.
func (r *release) when() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		out, err := exec.Command("git", "-C", r.repository, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the time of the commit: %w; SOURCE_DATE_EPOCH may say it", err)
		}
		epoch = strings.TrimSpace(string(out))
	}
	s, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(s, 0).UTC(), nil
}

// build builds the program as `make` does, whatever the environment says of how to build.
func (r *release) build(arch string) (string, error) {
	program := filepath.Join(r.work, "ckptfs-"+arch)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	return program, r.command(
		[]string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=",
			"GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off"},
		"go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags", "-s -w -X main.version="+r.version.described, "-o", program, "./cmd/ckptfs")
}

// native is the program for this machine.
func (r *release) native() (string, error) { return r.build(runtime.GOARCH) }

// command runs a program in the sources.
func (r *release) command(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.repository
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
