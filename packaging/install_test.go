package main

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// need skips a test where programs, root or FUSE are missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(err)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip(err)
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the tests install the packages for amd64")
	}
}

// emptyRoot is a root with merged folders, devices, and nothing else.
func emptyRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	must(t, exec.Command("sh", "-ec", `cd "$1"
mkdir -p dev etc proc run tmp usr/bin usr/sbin usr/lib usr/lib64 var/lib mnt store
for d in bin sbin lib lib64; do ln -s usr/$d $d; done
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/fuse c 10 229
echo root:x:0:0:root:/root:/bin/sh >etc/passwd`, "sh", root))
	return root
}

// cleanRoot is one that has a shell too, and mount(8), and a few other programs, with their libraries.
func cleanRoot(t *testing.T) string {
	t.Helper()
	root := emptyRoot(t)
	must(t, exec.Command("sh", "-ec", `root=$1; shift
for p in "$@"; do
    p=$(command -v $p)
    cp -L $p $root/usr/bin/
    ldd $p | grep -o '/[^ ]*' | while read -r l; do
        mkdir -p $root$(dirname $l)
        [ -e $root$l ] || cp -L $l $root$l
    done
done`, "sh", root, "sh", "mount", "umount", "cat", "ls", "rm"))
	return root
}

// in runs a program in a root, in a mount namespace of its own: what it leaves mounted goes with it.
func in(t *testing.T, root string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return must(t, exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--propagation", "private",
		"sh", "-ec", `mount -t proc proc "$0/proc"; exec chroot "$0" "$@"`, root}, args...)...))
}

// roundTrip mounts by mount(8) and unmounts, twice, as the installed program says who it is.
const roundTrip = `export PATH=/usr/sbin:/usr/bin
ckptfs version
mount -t fuse.ckptfs /store /mnt -o hot_size=10%,uhelper=ckptfs
echo it is here >/mnt/file
ckptfs sync /mnt
umount /mnt
ls -A /mnt
mount -t ckptfs /store /mnt
cat /mnt/file
ckptfs umount /mnt
`

// used looks at what roundTrip printed.
func used(t *testing.T, said string) {
	t.Helper()
	if !strings.Contains(said, "ckptfs "+described+",") || !strings.Contains(said, "it is here") {
		t.Error(said)
	}
}

// installed looks for what a package has besides.
func installed(t *testing.T, root string, more ...string) {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/ckptfs@.service"))
	if err != nil || !bytes.Contains(unit, []byte("ExecStart=/usr/bin/ckptfs mount")) {
		t.Errorf("the unit: %v\n%s", err, unit)
	}
	for _, name := range append(more, "etc/ckptfs", "usr/share/man/man1/ckptfs-mount.1.gz",
		"usr/share/man/man7/ckptfs-exit-codes.7.gz", "usr/share/bash-completion/completions/ckptfs",
		"usr/share/fish/vendor_completions.d/ckptfs.fish", "usr/share/ckptfs/monitoring/ckptfs.rules.yml",
		"usr/share/ckptfs/monitoring/ckptfs.dashboard.json") {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}

// left are files of the package that are still there after its removal.
func left(t *testing.T, root string) {
	t.Helper()
	for _, dir := range []string{"usr", "etc"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && strings.Contains(d.Name(), "ckptfs") {
				t.Errorf("left: %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestDeb(t *testing.T) {
	need(t, "dpkg", "unshare")
	root := cleanRoot(t)
	must(t, exec.Command("sh", "-ec", `mkdir -p "$1/var/lib/dpkg/updates" "$1/var/lib/dpkg/info"; : >"$1/var/lib/dpkg/status"
: >"$1/var/lib/dpkg/available"`, "sh", root))
	must(t, exec.Command("dpkg", "--root="+root, "--log=/dev/null", "--install", get(t, "*_amd64.deb")))
	installed(t, root, "usr/share/zsh/vendor-completions/_ckptfs")
	used(t, in(t, root, "sh", "-ec", roundTrip))
	must(t, exec.Command("dpkg", "--root="+root, "--log=/dev/null", "--purge", "ckptfs"))
	left(t, root)
}

func TestRPM(t *testing.T) {
	need(t, "rpm", "unshare")
	root := cleanRoot(t)
	// Without the dependencies: no package has installed the shell there.
	must(t, exec.Command("rpm", "--root", root, "--nodeps", "--install", get(t, "*.x86_64.rpm")))
	installed(t, root, "usr/share/zsh/site-functions/_ckptfs")
	must(t, exec.Command("rpm", "--root", root, "--nodeps", "--verify", "ckptfs"))
	used(t, in(t, root, "sh", "-ec", roundTrip))
	must(t, exec.Command("rpm", "--root", root, "--nodeps", "--erase", "ckptfs"))
	left(t, root)
}

// A wheel in a fresh environment: the program mounts, and the package finds the mount.
func TestWheel(t *testing.T) {
	need(t, "python3", "unshare")
	dir := t.TempDir()
	venv := exec.Command("python3", "-m", "venv", filepath.Join(dir, "venv"))
	if out, err := venv.CombinedOutput(); err != nil {
		t.Skipf("no environment can be made: %s", out)
	}
	python := filepath.Join(dir, "venv/bin/python")
	must(t, exec.Command(python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check",
		get(t, "*x86_64.whl")))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-exc", `cd "$1"
PATH=$1/venv/bin:$PATH
mkdir mnt
ckptfs mount store mnt
python - <<'PY'
import ckptfs, importlib.metadata, pathlib
assert ckptfs.__version__ == importlib.metadata.version("ckptfs"), ckptfs.__version__
step = ckptfs.mount_of("mnt") / "runs/a/1"
ckptfs.record(step, metrics={"loss": 0.5})
(step / "model.bin").write_bytes(bytes(range(256)) * 4096)
found, = importlib.metadata.entry_points(group="fsspec.specs", name="ckptfs")
assert found.value == "ckptfs.filesystem:CkptfsFileSystem", found
assert set(importlib.metadata.metadata("ckptfs").get_all("Provides-Extra")) == {"notebooks"}
PY
ckptfs sync mnt
ckptfs umount mnt
python - <<'PY'
import ckptfs
store = ckptfs.Store("store") # by the program that the wheel brought
assert store.best("a", "loss").metrics == {"loss": 0.5} and store.program.path.endswith("venv/bin/ckptfs"), store.program.path
assert store.status()["mode"] == "unmounted" and "0.5" in store.runs["a"]._repr_html_()
PY
python -m ckptfs.reader --help >/dev/null
ls venv/share/man/man1/ckptfs-mount.1.gz
pip check
pip uninstall -y -q ckptfs
! ls venv/bin/ckptfs`, "sh", dir)
	must(t, cmd)
}

// The image holds all that a mount needs, and it is there for both processors.
func TestImage(t *testing.T) {
	need(t, "unshare")
	dir := t.TempDir()
	must(t, exec.Command("tar", "-xf", get(t, "*-oci.tar"), "-C", dir))
	at, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := at.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("%+v, %v", top, err)
	}
	index, err := at.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil || len(images.Manifests) != len(arches) {
		t.Fatalf("%+v, %v", images, err)
	}
	for _, m := range images.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		root := unpack(t, img)
		config, err := img.ConfigFile()
		if err != nil || config.Architecture != m.Platform.Architecture {
			t.Fatalf("%+v, %v", config, err)
		}
		program := config.Config.Entrypoint[0]
		isFor(t, filepath.Join(root, program), m.Platform.Architecture)
		if m.Platform.Architecture != runtime.GOARCH {
			continue
		}
		roots, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
		if err != nil || bytes.Count(roots, []byte("BEGIN CERTIFICATE")) < 100 {
			t.Errorf("authorities: %v, %d bytes", err, len(roots))
		}
		for _, name := range []string{"ckptfs.rules.yml", "ckptfs.dashboard.json"} {
			must(t, exec.Command("cmp", filepath.Join(root, "usr", monitoring, name),
				filepath.Join("..", "docs", "monitoring", name)))
		}
		serve(t, root, program)
	}
}

// unpack writes an image's files into an empty root.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	files := mutate.Extract(img)
	defer files.Close()
	cmd := exec.Command("tar", "-xf", "-", "-C", root)
	cmd.Stdin = files
	must(t, cmd)
	return root
}

// serve mounts in an image's files as a container does, where nothing else is, and reads from outside.
func serve(t *testing.T, root, program string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must(t, exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-exc", `cd "$0"
mkdir -p proc dev mnt data
mount -t proc proc proc
mknod -m 666 dev/fuse c 10 229
mknod -m 666 dev/null c 1 3
chroot . $1 mount --foreground --mkdir /data/store /mnt/files 2>said &
until chroot . $1 status /mnt/files >/dev/null 2>&1; do kill -0 $! || { cat said; exit 1; }; done
echo it is here >mnt/files/file
chroot . $1 umount /mnt/files
wait $!
test -d mnt/files -a ! -e mnt/files/file`, root, program))
}

// isFor tells for which processor a program is, and that it needs no library.
func isFor(t *testing.T, path, arch string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; err != nil ||
		f.Machine != want || len(libraries) > 0 {
		t.Errorf("%s: %v, libraries %v, %v", path, f.Machine, libraries, err)
	}
}

// Packages for arm64 have its program, which runs there.
func TestOtherProcessor(t *testing.T) {
	need(t, "dpkg")
	root := t.TempDir()
	must(t, exec.Command("dpkg", "--extract", get(t, "*_arm64.deb"), root))
	program := filepath.Join(root, "usr/bin/ckptfs")
	isFor(t, program, "arm64")
	isFor(t, get(t, "*-linux-arm64"), "arm64")
	isFor(t, get(t, "*-linux-amd64"), "amd64")
	arch := must(t, exec.Command("dpkg-deb", "--field", get(t, "*_arm64.deb"), "Architecture"))
	if arch != "arm64\n" {
		t.Error(arch)
	}
	if _, err := exec.LookPath("rpm"); err == nil {
		arch := must(t, exec.Command("rpm", "-qp", "--qf", "%{ARCH}", get(t, "*.aarch64.rpm")))
		if arch != "aarch64" {
			t.Error(arch)
		}
	}
	if _, err := exec.LookPath("qemu-aarch64-static"); err != nil {
		t.Skip(err)
	}
	said := must(t, exec.Command("qemu-aarch64-static", program, "version"))
	if !strings.Contains(said, described) || !strings.Contains(said, "linux/arm64") {
		t.Error(said)
	}
}
