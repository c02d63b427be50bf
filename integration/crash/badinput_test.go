package crash

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ckptfs/integration/daemon"
	"ckptfs/integration/mounttest"

	"golang.org/x/sys/unix"
)

// garbage is files that claim to be what they are not, by name.
func garbage(t *testing.T) map[string][]byte {
	t.Helper()
	tail := mounttest.Noise(9, 96<<10) // large enough to be packed
	files := map[string][]byte{}
	header := func(name string, n uint64, json string) {
		files[name+".safetensors"] = slices.Concat(binary.LittleEndian.AppendUint64(nil, n),
			[]byte(json), tail)
	}
	whole := func(name, json string) { header(name, uint64(len(json)), json) }
	header("no-header", 0, "")
	header("header-2e60", 1<<60, `{"a":{`)
	header("header-max", 1<<64-1, `{}`)
	header("header-past-end", uint64(len(tail))+1000, `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`)
	whole("no-json", strings.Repeat("nonsense ", 1000))
	whole("deep-json", strings.Repeat(`{"a":`, 30000))
	whole("deep-list", strings.Repeat(`[`, 60000))
	whole("twice", `{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`)
	whole("overlap", `{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}`)
	whole("reversed", `{"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}}`)
	whole("negative", `{"a":{"dtype":"U8","shape":[-8],"data_offsets":[-8,0]}}`)
	whole("overflow", `{"a":{"dtype":"F64","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}}`)
	whole("offsets-2e62", `{"a":{"dtype":"U8","shape":[4611686018427387904],"data_offsets":[4611686018427387904,9223372036854775807]}}`)
	whole("float", `{"a":{"dtype":"U8","shape":[1e400],"data_offsets":[0.5,1e3]}}`)
	whole("dtype", `{"a":{"dtype":"F7","shape":[8],"data_offsets":[0,8]}}`)
	whole("name", `{"`+strings.Repeat("x", 1<<20)+`":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`)
	whole("dots", `{"../../../etc/passwd":{"dtype":"U8","shape":[`+fmt.Sprint(len(tail))+`],"data_offsets":[0,`+fmt.Sprint(len(tail))+`]}}`)
	whole("empty-tensors", "{"+strings.TrimSuffix(strings.Repeat("", 0)+manyEmpty(20000), ",")+"}")

	archive := func(name string, write func(z *zip.Writer)) {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser,
			error) {
			return flate.NewWriter(w, flate.BestSpeed)
		})
		write(z)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		files[name] = append(b.Bytes(), 0)[:b.Len()]
	}
	entry := func(z *zip.Writer, name string, method uint16, data ...[]byte) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range data {
			if _, err := w.Write(d); err != nil {
				t.Fatal(err)
			}
		}
	}
	zeros := slices.Repeat([][]byte{make([]byte, mib)}, 256)
	archive("bomb.pt", func(z *zip.Writer) {
		entry(z, "m/data.pkl", zip.Deflate, zeros...)
		entry(z, "m/data/0", zip.Deflate, zeros...)
	})
	archive("bomb.npz", func(z *zip.Writer) {
		entry(z, "a.npy", zip.Deflate, zeros...)
	})
	pickles := map[string]string{
		"laughs": "\x80\x02)" + strings.Repeat("2\x86", 5000) + ".",
		"marks":  "\x80\x02" + strings.Repeat("(", 200000) + ".",
		"long4":  "\x80\x02\x8b\xff\xff\xff\x7f.",
		"string": "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x0f.",
		"memo":   "\x80\x02)r\xff\xff\xff\xff.",
		"pops":   "\x80\x02" + strings.Repeat("0", 1000) + ".",
		"system": "cos\nsystem\n(S'touch /tmp/ckptfs-was-here'\ntR.",
		"frame":  "\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f)." + strings.Repeat("x", 100),
	}
	for name, p := range pickles {
		archive("pickle-"+name+".pt", func(z *zip.Writer) {
			entry(z, "m/data.pkl", zip.Store, []byte(p))
			entry(z, "m/data/0", zip.Store, tail)
		})
		files["bare-"+name+".pt"] = append([]byte(p), tail...)
	}
	npy := "\x93NUMPY\x02\x00\xff\xff\xff\x7f{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,), }\n"
	files["header.npy"] = append([]byte(npy), tail...)
	npy = "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296), }\n"
	files["shape.npy"] = slices.Concat([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil,
		uint16(len(npy))), []byte(npy), tail)

	// Whole files, cut short or with a byte changed where it hurts.
	for _, path := range []string{"torch/flat.pt", "torch/views.pt", "torch/adamw.pt", "safetensors/dtypes.safetensors"} {
		b, err := os.ReadFile("../../formats/testdata/" + path)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(path)
		for _, n := range []int{1, 7, 9, len(b) / 2, len(b) - 22, len(b) - 1} {
			files[fmt.Sprintf("cut-%d-%s", n, base)] = b[:n]
		}
		for _, at := range []int{0, 8, 30, len(b) / 2, len(b) - 20, len(b) - 6, len(b) - 2} {
			c := slices.Clone(b)
			c[at] ^= 0xff
			files[fmt.Sprintf("flip-%d-%s", at, base)] = append(c, tail[:0]...)
		}
	}
	return files
}

func manyEmpty(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},`, i)
	}
	return b.String()
}

// TestGarbage: whatever a file claims to be, it is kept byte for byte, and the daemon neither dies nor grows.
func TestGarbage(t *testing.T) {
	t.Parallel()
	m := mounttest.New(t)
	files := garbage(t)
	for name, data := range files {
		m.Write("runs/bad/1/"+name, data)
	}
	check := func(when string) {
		t.Helper()
		ask := m.Asker()
		for name, data := range files {
			got, err := os.ReadFile(m.Path("runs/bad/1", name))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %s: %v: %s", when, name, err, mounttest.Difference(data, got))
			}
		}
		// with views of what was taken for a checkpoint after all
		for _, name := range m.Names("runs/bad/1") {
			if _, err := os.ReadFile(m.Path("runs/bad/1", name)); err != nil {
				t.Errorf("%s: %s: %v", when, name, err)
			}
			if code, said := ask("GET", "show", "runs/bad/1/"+name); code != 200 {
				t.Errorf("%s: show %s: %d: %s", when, name, code, said)
			}
		}
	}
	check("resident")
	m.Sync()
	_, _ = m.CLI("evict", m.Dir) // small files that are no checkpoints stay
	check("packed")
	if s := m.Status(); len(s.Failures) > 0 {
		t.Errorf("%+v", s.Failures)
	}
	if peak := m.PeakRSS(); peak > 400*mib {
		t.Errorf("the daemon took %d MiB", peak/mib)
	} else {
		t.Logf("%d files; the daemon took %d MiB", len(files), peak/mib)
	}
	if _, err := os.Stat("/tmp/ckptfs-was-here"); err == nil {
		t.Error("a pickle was executed")
	}
	m.Kill()
	m.Must(m.Start())
	check("after a kill")
}

// TestWriterKilled: what a killed writer had written is there, and packs.
func TestWriterKilled(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		w := mounttest.Begin(t, m.Dir, "sh", "-c", "exec cat /dev/urandom >x")
		m.Must(daemon.Until("the writer to write", func() bool {
			st, err := os.Stat(m.Path("x"))
			return err == nil && st.Size() > 4*mib
		}))
		w.Kill()
		sum := m.Sum("x")
		m.Evict("x")
		if got := m.Sum("x"); got != sum {
			t.Error("packed, it is another file")
		}
		st, err := os.Stat(m.Path("x"))
		m.Must(err)
		f, err := os.OpenFile(m.Path("x"), os.O_WRONLY|os.O_APPEND, 0)
		m.Must(err)
		_, err = f.WriteString("and on")
		m.Must(errors.Join(err, f.Close()))
		got, err := os.ReadFile(m.Path("x"))
		m.Must(err)
		if int64(len(got)) != st.Size()+6 || !bytes.HasSuffix(got, []byte("and on")) {
			t.Errorf("appended to, it has %d bytes, want %d", len(got), st.Size()+6)
		}
	})
}

// TestTwoWriters: two processes that write one file at the same time each get their bytes in.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		const blocks, size = 128, 64 << 10
		want := mounttest.Noise(7, blocks*size)
		half := filepath.Join(t.TempDir(), "want")
		m.Must(os.WriteFile(half, want, 0o644))
		writer := func(first int) *mounttest.Process {
			return mounttest.Begin(t, m.Dir, "sh", "-ec", fmt.Sprintf(
				`i=%d; while [ $i -lt %d ]; do dd if=%s of=x bs=%d count=1 skip=$i seek=$i conv=notrunc status=none; i=$((i + 2)); done`, first, blocks, half, size))
		}
		line := func(who string) *mounttest.Process {
			return mounttest.Begin(t, m.Dir, "sh", "-ec", fmt.Sprintf(`i=0; while [ $i -lt 200 ]; do echo "%s says $i" >>log; i=$((i + 1)); done`, who))
		}
		all := []*mounttest.Process{writer(0), writer(1), line("a"), line("b")}
		for _, p := range all {
			if code := p.Code(); code != 0 {
				t.Errorf("%v: %d: %s", p.Args, code, p.Text())
			}
		}
		m.Want("x", want)
		check := func() {
			t.Helper()
			b, err := os.ReadFile(m.Path("log"))
			m.Must(err)
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			slices.Sort(lines)
			if lines = slices.Compact(lines); len(lines) != 400 {
				t.Errorf("%d distinct lines of 400", len(lines))
			}
		}
		check()
		m.Evict("x")
		m.Want("x", want)
		check()
	})
}

// TestRudeWriters does in one mount and in one plain folder what programs should not do, step by step,
// packing and evicting in between, and compares.
func TestRudeWriters(t *testing.T) {
	t.Parallel()
	mounttest.Modes(t, func(t *testing.T, m *mounttest.Mount) {
		plain := t.TempDir()
		both := func(what string, do func(dir string) error) {
			t.Helper()
			got, want := do(m.Dir), do(plain)
			if seenErrno(got) != seenErrno(want) {
				t.Errorf("%s: %v, on a plain folder %v", what, got, want)
			}
			a, errA := os.ReadFile(m.Path("x"))
			b, errB := os.ReadFile(filepath.Join(plain, "x"))
			if seenErrno(errA) != seenErrno(errB) || !bytes.Equal(a, b) {
				t.Fatalf("after %s: %s (%v, %v)", what, mounttest.Difference(b, a), errA, errB)
			}
		}
		fds := map[string]*os.File{}
		open := func(name string, flag int) func(string) error {
			return func(dir string) error {
				f, err := os.OpenFile(filepath.Join(dir, "x"), flag, 0o644)
				if err == nil {
					fds[name+dir] = f
					t.Cleanup(func() { f.Close() })
				}
				return err
			}
		}
		write := func(name string, data []byte) func(string) error {
			return func(dir string) error { _, err := fds[name+dir].Write(data); return err }
		}
		closing := func(name string) func(string) error {
			return func(dir string) error { return fds[name+dir].Close() }
		}
		both("open", open("a", os.O_CREATE|os.O_WRONLY))
		both("write", write("a", mounttest.Noise(1, mib)))
		both("a second writer truncates", open("b", os.O_TRUNC|os.O_RDWR))
		both("and writes", write("b", mounttest.Noise(2, 100<<10)))
		both("the first writes on", write("a", mounttest.Noise(3, 300<<10)))
		both("read of a write-only descriptor", func(dir string) error { _, err := fds["a"+dir].Read(make([]byte, 10)); return err })
		both("close", closing("a"))
		both("close", closing("b"))
		m.Sync() // it has a hole, and stays
		both("append", open("c", os.O_APPEND|os.O_WRONLY))
		both("a reader", open("r", os.O_RDONLY))
		both("write of a read-only descriptor", write("r", []byte("x")))
		both("write", write("c", mounttest.Noise(4, 100<<10)))
		both("truncate under it", func(dir string) error {
			return os.Truncate(filepath.Join(dir, "x"),
				1000)
		})
		both("write after it", write("c", mounttest.Noise(5, 1000)))
		both("rename over it", func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "y"), mounttest.Noise(6, 200<<10), 0o644); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "y"), filepath.Join(dir, "x"))
		})
		both("write to what has no name", write("c", mounttest.Noise(7, 1000)))
		both("close", closing("c"))
		both("truncate to the largest size", func(dir string) error { return os.Truncate(filepath.Join(dir, "x"), 1<<62) })
		both("seek past the end and write", func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, "x"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("end"), 3*mib)
			return err
		})
		both("write at the largest offset", func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, "x"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("end"), 1<<62)
			return err
		})
		both("open a file as a folder", func(dir string) error { _, err := os.ReadFile(filepath.Join(dir, "x/y")); return err })
		both("too long a name", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, strings.Repeat("n", 256)), nil, 0o644)
		})
		both("remove a folder that is not empty", func(dir string) error {
			if err := os.MkdirAll(filepath.Join(dir, "d/e"), 0o755); err != nil {
				return err
			}
			return unix.Rmdir(filepath.Join(dir, "d"))
		})
		both("a folder into itself", func(dir string) error {
			return os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "d/e/f"))
		})
		both("the store's own attribute", func(dir string) error {
			return unix.Setxattr(filepath.Join(dir, "x"), "user.other", make([]byte, 70000), 0)
		})
		both("remove", func(dir string) error { return os.Remove(filepath.Join(dir, "x")) })
	})
}

// seenErrno is what a program sees of an error, 0 for none.
func seenErrno(err error) syscall.Errno {
	var n syscall.Errno
	if err != nil && !errors.As(err, &n) {
		return 9999 // of Go, no errno
	}
	return n
}

// TestFullDiskErrnos: on a full disk every operation gets what it gets in a plain folder of that disk.
func TestFullDiskErrnos(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ext4", "tmpfs"} {
		for _, mode := range []string{"passthrough", "served"} {
			t.Run(kind+" "+mode, func(t *testing.T) {
				t.Parallel()
				disk := mounttest.MountDisk(t, kind, 64)
				m := mounttest.Prepare(t, disk, map[string][]string{"served": {"--no-passthrough"}}[mode]...)
				m.Log = filepath.Join(t.TempDir(), "log")
				m.Must(m.Start())
				plain := filepath.Join(disk, "plain")
				m.Must(os.Mkdir(plain, 0o755))
				for _, dir := range []string{m.Dir, plain} {
					m.Must(os.WriteFile(filepath.Join(dir, "old"), mounttest.Noise(1, mib), 0o644))
					m.Must(os.WriteFile(filepath.Join(dir, "small"), []byte("small"), 0o644))
					m.Must(os.WriteFile(filepath.Join(dir, "empty"), nil, 0o644))
				}
				m.Sync()
				ballast, err := os.Create(filepath.Join(disk, "ballast"))
				m.Must(err)
				for n := mib; n >= 512; {
					if _, err := ballast.Write(make([]byte, n)); err != nil {
						n /= 2
					}
				}
				m.Must(ballast.Close())

				at := func(name string) func(string) string {
					return func(dir string) string { return filepath.Join(dir, name) }
				}
				fill := func(name string, flag int, n int, off int64) func(string) error {
					return func(dir string) error {
						f, err := os.OpenFile(at(name)(dir), flag, 0o644)
						if err != nil {
							return err
						}
						_, err = f.WriteAt(make([]byte, n), off)
						if err == nil {
							err = f.Sync()
						}
						return errors.Join(err, f.Close())
					}
				}
				for _, c := range []struct {
					what string
					do   func(dir string) error
					undo string
				}{
					{"write a large file", fill("new", os.O_CREATE|os.O_WRONLY, 8*mib, 0), "new"},
					{"write to an empty file", fill("empty", os.O_WRONLY, 2*mib, 0), ""},
					{"grow", fill("small", os.O_WRONLY, 2*mib, 1<<20), ""},
					{"write over the middle", fill("small", os.O_WRONLY, 3, 1), ""},
					{"allocate", func(dir string) error {
						f, err := os.OpenFile(at("empty")(dir), os.O_WRONLY, 0)
						if err != nil {
							return err
						}
						defer f.Close()
						return unix.Fallocate(int(f.Fd()), 0, 0, 4*mib)
					}, ""},
					{"stretch", func(dir string) error { return os.Truncate(at("empty")(dir), 1<<30) }, ""},
					{"shrink", func(dir string) error { return os.Truncate(at("empty")(dir), 0) }, ""},
					{"rename", func(dir string) error {
						return os.Rename(at("small")(dir),
							at("renamed")(dir))
					}, ""},
					{"link", func(dir string) error { return os.Link(at("renamed")(dir), at("link")(dir)) },
						"link"},
					{"a large attribute", func(dir string) error {
						return unix.Setxattr(at("renamed")(dir), "user.large", make([]byte, 3000), 0)
					}, ""},
					{"read", func(dir string) error {
						b, err := os.ReadFile(at("old")(dir))
						if err == nil && !bytes.Equal(b, mounttest.Noise(1, mib)) {
							err = errors.New("other bytes")
						}
						return err
					}, ""},
					{"remove", func(dir string) error { return os.Remove(at("renamed")(dir)) }, ""},
				} {
					got, want := c.do(m.Dir), c.do(plain)
					if seenErrno(got) != seenErrno(want) {
						t.Errorf("%s: %v, in a plain folder %v", c.what, got, want)
					}
					for _, dir := range []string{m.Dir, plain} {
						if c.undo != "" {
							_ = os.Remove(at(c.undo)(dir))
						}
					}
				}
				m.Want("old", mounttest.Noise(1, mib))
				m.Run("status", m.Dir)

				m.Must(os.Remove(ballast.Name()))
				m.Write("after", mounttest.Noise(3, 2*mib))
				m.Evict("after", "old")
				m.Want("after", mounttest.Noise(3, 2*mib))
				m.Want("old", mounttest.Noise(1, mib))
				m.Kill()
				m.Must(m.Start())
				m.Want("after", mounttest.Noise(3, 2*mib))
				m.Want("old", mounttest.Noise(1, mib))
			})
		}
	}
}
