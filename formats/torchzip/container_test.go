package torchzip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ckptfs/formats"
)

// simple is a state dict of one tensor of four floats.
func simple() testZip {
	return checkpoint(dict(text("a"), tensorV2(storageID("FloatStorage", "0", 4), 0, []int64{4},
		[]int64{1})), 16)
}

func TestContainer(t *testing.T) {
	for _, c := range []struct {
		name string
		zip  func(z *testZip)
	}{
		{"as it is", func(z *testZip) {}},
		{"no zip64 records", func(z *testZip) { z.zip64 = false }},
		{"end record that leaves all to zip64", func(z *testZip) {
			z.end = func(e []byte) { copy(e[8:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff") }
		}},
		{"sizes in the local header", func(z *testZip) { z.records[2].localSizes = &[2]uint32{16, 16} }},
		{"sizes in the local header's zip64 field",
			func(z *testZip) { z.records[2].localSizes = &[2]uint32{1<<32 - 1, 1<<32 - 1} }},
		{"no byteorder, as before torch 2.1",
			func(z *testZip) { z.records = append(z.records[:1], z.records[2:]...) }},
		{"padding", func(z *testZip) { z.records[2].extra = "FB\x03\x00ZZZ" }},
		{"a gap before the directory", func(z *testZip) { z.after = "gap" }},
		{"records in another order", func(z *testZip) { slices.Reverse(z.records) }},
		{"another compressed record", func(z *testZip) { z.records[3].method = 8 }},
		{"a long stem", func(z *testZip) {
			for i := range z.records {
				z.records[i].name = strings.Repeat("s", 255) + "/" + z.records[i].name
			}
			for i := range z.records {
				z.records[i].name = strings.Replace(z.records[i].name, "/m/", "/", 1)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := simple()
			c.zip(&z)
			l := mustParse(t, z)
			if got := names(l); got != "a F32 [4]" {
				t.Errorf("tensors %q", got)
			}
			if got := dataRegions(l); len(got) != 1 || got[0] != 16 {
				t.Errorf("data %v", got)
			}
		})
	}
}

// TestRejects breaks each rule of the container once.
func TestRejects(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		name string
		zip  func(z *testZip)
		want string // part of the reason
	}{
		{"garbage before", func(z *testZip) { z.lead = "garbage" }, "no local header at the start"},
		{"an unlisted record first", func(z *testZip) { z.lead = localSig + strings.Repeat("\x00", 60) },
			"first record at 64"},
		{"garbage after", func(z *testZip) { z.trail = "garbage" }, "no end record"},
		{"a comment", func(z *testZip) { z.end = func(e []byte) { e[20] = 1 } }, "a comment"},
		{"two disks", func(z *testZip) { z.zip64 = false; z.end = func(e []byte) { e[4] = 1 } },
			"more than one disk"},
		{"two disks by zip64", func(z *testZip) { z.end64 = func(e []byte) { e[16] = 1 } },
			"differs from the zip64"},
		{"another count by zip64", func(z *testZip) { z.end64 = func(e []byte) { e[32]++ } },
			"differs from the zip64"},
		{"another offset by zip64", func(z *testZip) { z.end64 = func(e []byte) { e[48]++ } },
			"differs from the zip64"},
		{"locator without record", func(z *testZip) { z.end64 = func(e []byte) { e[0] = 0 } },
			"no zip64 end record"},
		{"longer zip64 record", func(z *testZip) { z.end64 = func(e []byte) { e[4]++ } },
			"no zip64 end record"},
		{"locator that points elsewhere", func(z *testZip) { z.locator = func(l []byte) { l[8]++ } },
			"doesn't point"},
		{"locator of another disk", func(z *testZip) { z.locator = func(l []byte) { l[4]++ } },
			"doesn't point"},
		{"directory that ends elsewhere",
			func(z *testZip) { z.zip64 = false; z.end = func(e []byte) { e[12]++ } }, "don't end at"},
		{"directory that starts elsewhere",
			func(z *testZip) { z.zip64 = false; z.end = func(e []byte) { e[16]-- } }, "don't end at"},
		{"directory past the file", func(z *testZip) {
			z.zip64 = false
			z.end = func(e []byte) { le.PutUint32(e[16:], 1<<31) }
		}, "don't end at"},
		{"one record less than there are", func(z *testZip) {
			z.zip64 = false
			z.end = func(e []byte) { e[8]--; e[10]-- }
		}, "directory:"},
		{"65536 records more", func(z *testZip) {
			z.end = func(e []byte) { le.PutUint32(e[8:], 1<<32-1) }
			z.end64 = func(e []byte) { e[26]++; e[34]++ }
		}, "records in a directory"},
		{"more records than may be", func(z *testZip) {
			z.end = func(e []byte) { le.PutUint32(e[8:], 1<<32-1) }
			z.end64 = func(e []byte) { e[28]++; e[36]++ }
		}, "more than 262144"},
		{"2^63 records", func(z *testZip) {
			z.end = func(e []byte) { le.PutUint32(e[8:], 1<<32-1) }
			z.end64 = func(e []byte) { e[31] = 0x80; e[39] = 0x80 }
		}, "more than 262144"},
		{"larger directory than may be", func(z *testZip) {
			z.end = func(e []byte) { le.PutUint32(e[12:], 1<<32-1) }
			z.end64 = func(e []byte) { e[44]++ }
		}, "more than 67108864"},
		{"a record that is none", func(z *testZip) { z.records[1].central = func(h []byte) { h[0] = 0 } },
			"directory:"},

		{"no folder", func(z *testZip) { z.records[0].name = "data.pkl" }, "not in a folder"},
		{"two stems", func(z *testZip) { z.records[3].name = "n/version" }, "not in folder"},
		{"stem as a prefix", func(z *testZip) { z.records[3].name = "mm/version" }, "not in folder"},
		{"a name twice", func(z *testZip) { z.records[3].name = "m/data/0" }, "name used twice"},
		{"a name twice but for its case", func(z *testZip) { z.records[3].name = "m/DATA/0" },
			"name used twice"},
		{"no pickle", func(z *testZip) { z.records[0].name = "m/other.pkl" }, "no record data.pkl"},

		{"another name in the local header", func(z *testZip) { z.records[2].localName = "m/data/1" },
			"another name"},
		{"a longer name in the local header",
			func(z *testZip) { z.records[2].localName = strings.Repeat("n", 300) }, "another name"},
		{"another method in the local header", func(z *testZip) { z.records[2].localMethod = 8 },
			"another method"},
		{"another size in the local header",
			func(z *testZip) { z.records[2].localSizes = &[2]uint32{15, 16} }, "another size"},
		{"encrypted", func(z *testZip) { z.records[2].flags = 1 }, "encrypted"},
		{"stored, packed size differs",
			func(z *testZip) { z.records[2].central = func(h []byte) { h[20]-- } }, "sizes differ"},
		{"no header at the offset", func(z *testZip) { z.records[2].central = func(h []byte) { h[42]++ } },
			"no local header"},
		{"offset past the file", func(z *testZip) { z.records[2].central = func(h []byte) { h[45] = 0x7f } },
			"no local header"},
		{"a record over the directory", func(z *testZip) {
			z.records[2].central = func(h []byte) { h[21], h[25] = 1, 1 }
		}, "reaches into the directory"},
		{"a record over the next", func(z *testZip) { z.records[2].overlap = 20 }, "overlaps"},
		{"two records of one header", func(z *testZip) {
			z.records[3] = testRecord{name: "m/data/0", skipLocal: true,
				central: func(h []byte) { copy(h[42:], "\x00\x00\x00\x00") }}
		}, "another name"},
		{"compressed storage", func(z *testZip) { z.records[2].method = 8 }, "compressed by method 8"},
		{"compressed pickle", func(z *testZip) { z.records[0].method = 8 }, "compressed by method 8"},
		{"compressed byteorder", func(z *testZip) { z.records[1].method = 8 }, "compressed by method 8"},
		{"big-endian", func(z *testZip) { z.records[1].data = []byte("big") }, `byteorder: "big"`},
		{"unknown byte order", func(z *testZip) { z.records[1].data = []byte("little\n") }, "byteorder"},
		{"endless byte order", func(z *testZip) { z.records[1].zero = 1 << 30 },
			"byteorder: 1073741830 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := simple()
			c.zip(&z)
			l, err := parse(z.build())
			if !errors.Is(err, formats.ErrNotFormat) {
				t.Fatalf("layout %v, error %v", l, err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("reason %q, want %q", err, c.want)
			}
		})
	}
	for n := range 100 {
		f := sparse{size: int64(n)}
		if _, err := parse(&f); !errors.Is(err, formats.ErrNotFormat) {
			t.Errorf("%d zeros: %v", n, err)
		}
	}
}

// TestConcatenated has two whole files one after the other, as DCP's .distcp has them.
func TestConcatenated(t *testing.T) {
	p := simple().build().bytes()
	f := &sparse{}
	f.add(p)
	f.add(p)
	if l, err := parse(f); !errors.Is(err, formats.ErrNotFormat) {
		t.Errorf("layout %v, error %v", l, err)
	}
}

// TestZip64 has a storage of more than 4 GiB and one behind it.
func TestZip64(t *testing.T) {
	const n = 5 << 30
	z := checkpoint(dict(
		text("big"), tensorV2(storageID("ByteStorage", "0", n), 1<<32, []int64{1 << 30}, []int64{1}),
		text("next"), tensorV2(storageID("FloatStorage", "1", 4), 0, []int64{4}, []int64{1}),
	), n, 16)
	l := mustParse(t, z)
	if got := names(l); got != "big U8 [1073741824] at 4294967296, next F32 [4]" {
		t.Errorf("tensors %q", got)
	}
	if got := dataRegions(l); fmt.Sprint(got) != "[5368709120 16]" {
		t.Errorf("data %v", got)
	}
	if off := l.Regions[l.Tensors[1].Region].Off; off < n {
		t.Errorf("second storage at %d", off)
	}
}

// counter counts what is read of a file.
type counter struct {
	io.ReaderAt
	reads, bytes int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, off)
}

// resnet is a file of 1 GiB with 122 storages.
func resnet() *sparse {
	const n = 122
	size := int64(1 << 30 / n &^ 3)
	var pairs []string
	for i := range n {
		key := fmt.Sprint(i)
		pairs = append(pairs, text("layer."+key+".weight"),
			tensorV2(storageID("FloatStorage", key, size/4), 0, []int64{size / 4}, []int64{1}))
	}
	return checkpoint(dict(pairs...), slices.Repeat([]int64{size}, n)...).build()
}

// TestReadsLittle checks that the storages themselves are not read.
func TestReadsLittle(t *testing.T) {
	f := resnet()
	c := &counter{ReaderAt: f}
	l, err := Parser{}.Parse(c, f.size)
	if err != nil || len(l.Tensors) != 122 {
		t.Fatalf("%v, %v", l, err)
	}
	if c.bytes > 128<<10 || c.reads > 150 {
		t.Errorf("%d bytes in %d reads", c.bytes, c.reads)
	}
}

func BenchmarkParse1GiB(b *testing.B) {
	name := b.TempDir() + "/f"
	f, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	s := resnet()
	for _, x := range s.parts {
		if _, err := f.WriteAt(x.p, x.off); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if l, err := (Parser{}).Parse(f, s.size); err != nil || len(l.Tensors) != 122 {
			b.Fatal(err)
		}
	}
}

// TestReadError fails each read in turn, and cuts the file short at each length.
func TestReadError(t *testing.T) {
	f := simple().build()
	for n := 0; ; n++ {
		l, err := Parser{}.Parse(&failing{f, n}, f.size)
		if err == nil {
			if n < 5 || len(l.Tensors) != 1 {
				t.Errorf("layout %v after %d reads", l, n)
			}
			break
		}
		if err != errDisk {
			t.Fatalf("read %d: %v", n, err)
		}
	}
	p := f.bytes()
	for n := range p {
		short := &sparse{}
		short.add(p[:n])
		if _, err := (Parser{}).Parse(short, f.size); err != io.ErrUnexpectedEOF {
			t.Fatalf("file of %d bytes that should have %d: %v", n, len(p), err)
		}
	}
}

var errDisk = errors.New("disk")

type failing struct {
	r     io.ReaderAt
	after int // reads that succeed
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errDisk
	}
	return f.r.ReadAt(p, off)
}

// TestManyRecords has as many records as may be, and one more.
func TestManyRecords(t *testing.T) {
	if testing.Short() {
		t.Skip("a directory of 20 MB")
	}
	z := checkpoint("N", slices.Repeat([]int64{4}, 1<<18-3)...)
	f := z.build()
	start := time.Now()
	l, err := parse(&sparse{f.size, []part{{0, f.bytes()}}})
	if err != nil || len(dataRegions(l)) != 1<<18-3 {
		t.Fatalf("%v", err)
	}
	t.Logf("%d records in %v", 1<<18, time.Since(start))
	z.records = append(z.records, testRecord{name: "m/more"})
	if _, err := parse(z.build()); !errors.Is(err, formats.ErrNotFormat) {
		t.Errorf("one record too many: %v", err)
	}
}
