package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pkg is what go list tells of a package.
type pkg struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// layers are the packages of the module, each with those of the module that it may import. A package imports
// only what stands above it in this list.
var layers = []struct {
	pkg string
	may []string
}{
	{"cas/simd", nil},
	{"cas/blake3", []string{"cas/simd"}},
	{"cas", []string{"cas/blake3"}},
	{"cas/locks", nil},
	{"cas/golden", nil},
	{"cas/disk", nil},
	{"cas/disk/disktest", nil},
	{"cas/disk/killtest", nil},
	{"cas/pages", nil},
	{"cas/spilled", []string{"cas/disk"}},
	{"cas/chunk", []string{"cas"}},
	{"cas/codectest", []string{"cas/simd"}},
	{"cas/half", []string{"cas/simd"}},
	{"cas/rans", []string{"cas/simd"}},
	{"cas/lowrank", []string{"cas/half", "cas/simd"}},
	{"cas/quant", []string{"cas", "cas/half", "cas/simd"}},
	{"cas/codec", []string{"cas", "cas/half", "cas/lowrank", "cas/rans", "cas/simd"}},
	{"cas/recipe", []string{"cas", "cas/codec", "cas/half", "cas/quant"}},
	{"cas/anchor", []string{"cas/half", "cas/quant"}},
	{"cas/scratch", nil},
	{"cas/segment", []string{"cas", "cas/locks", "cas/disk", "cas/codec", "cas/scratch"}},
	{"cas/damage", []string{"cas", "cas/segment"}},
	{"cas/expected", []string{"cas", "cas/disk", "cas/locks", "cas/pages", "cas/scratch", "cas/segment"}},
	{"cas/proven", []string{"cas", "cas/disk", "cas/locks", "cas/spilled"}},
	{"cas/trust", []string{"cas", "cas/codec", "cas/segment"}},
	{"cas/delta", []string{"cas", "cas/codec", "cas/recipe", "cas/scratch", "cas/segment"}},
	{"cas/salvage", []string{"cas", "cas/disk", "cas/codec", "cas/segment"}},
	{"cas/copies", []string{"cas", "cas/segment"}},
	{"cas/store", []string{"cas", "cas/codec", "cas/copies", "cas/damage", "cas/delta", "cas/disk",
		"cas/expected", "cas/locks", "cas/pages", "cas/proven", "cas/scratch", "cas/segment", "cas/spilled",
		"cas/trust"}},
	{"cas/kept", []string{"cas", "cas/codec", "cas/disk", "cas/segment", "cas/spilled", "cas/store"}},
	{"cas/dry", []string{"cas", "cas/codec", "cas/delta", "cas/disk", "cas/recipe", "cas/scratch",
		"cas/segment", "cas/spilled"}},
	{"cas/document", []string{"cas"}},
	{"cas/remote/bucket", nil},
	{"cas/remote/bucket/suite", []string{"cas/remote/bucket"}},
	{"cas/remote/patient", []string{"cas/remote/bucket"}},
	{"cas/remote/transport", []string{"cas/remote/bucket"}},
	{"cas/remote/s3", []string{"cas/remote/bucket", "cas/remote/transport"}},
	{"cas/remote/rated", []string{"cas/remote/bucket"}},
	{"cas/remote/s3/s3test", []string{"cas/remote/bucket", "cas/remote/s3"}},
	{"cas/remote/probe", []string{"cas/remote/bucket"}},
	{"cas/remote/record", []string{"cas", "cas/document", "cas/segment"}},
	{"cas/remote/names", []string{"cas/remote/record"}},
	{"cas/remote/heads", []string{"cas", "cas/remote/bucket", "cas/remote/record"}},
	{"cas/remote/objects", []string{"cas", "cas/codec", "cas/remote/bucket", "cas/remote/record",
		"cas/segment"}},
	{"cas/remote/objects/objectstest", []string{"cas", "cas/codec", "cas/remote/bucket",
		"cas/remote/objects", "cas/remote/record", "cas/segment"}},
	{"cas/remote/writer", []string{"cas", "cas/remote/bucket", "cas/remote/objects", "cas/remote/record",
		"cas/segment"}},
	{"cas/remote/names", []string{"cas/remote/record"}},
	{"cas/remote/survey", []string{"cas", "cas/remote/bucket", "cas/remote/names", "cas/remote/record"}},
	{"cas/remote/sweep", []string{"cas", "cas/remote/bucket", "cas/remote/names", "cas/remote/record",
		"cas/remote/survey"}},
	{"cas/remote/fetch", []string{"cas", "cas/codec", "cas/delta", "cas/remote/bucket",
		"cas/remote/record", "cas/segment"}},
	{"cas/remote/names", []string{"cas/remote/record"}},
	{"cas/remote/heads", []string{"cas", "cas/remote/bucket", "cas/remote/record"}},
	{"cas/remote/fetch", []string{"cas", "cas/codec", "cas/delta", "cas/remote/bucket",
		"cas/remote/record", "cas/segment"}},
	{"cas/remote/names", []string{"cas/remote/record"}},
	{"cas/remote/audit", []string{"cas", "cas/codec", "cas/remote/bucket", "cas/remote/fetch",
		"cas/remote/names", "cas/remote/record", "cas/remote/survey", "cas/segment"}},
	{"cas/remote/mend", []string{"cas", "cas/remote/bucket", "cas/remote/names", "cas/remote/record",
		"cas/remote/survey", "cas/segment"}},
	{"cas/remote/web", []string{"cas/remote/bucket", "cas/remote/record", "cas/remote/transport"}},
	{"cas/remote", []string{"cas", "cas/disk", "cas/remote/bucket", "cas/remote/record", "cas/remote/s3",
		"cas/remote/web"}},
	{"formats", nil},
	{"formats/numbers", []string{"formats"}},
	{"formats/pickle", []string{"formats"}},
	{"formats/safetensors", []string{"formats"}},
	{"formats/fixture", []string{"formats"}},
	{"formats/zipdir", []string{"formats"}},
	{"formats/torch", []string{"formats", "formats/pickle"}},
	{"formats/torchlegacy", []string{"formats", "formats/pickle", "formats/torch"}},
	{"formats/torchzip", []string{"formats", "formats/numbers", "formats/pickle", "formats/torch",
		"formats/zipdir"}},
	{"formats/npy", []string{"formats", "formats/zipdir"}},
	{"formats/pyobject", []string{"formats", "formats/pickle"}},
	{"formats/gguf", []string{"formats"}},
	{"formats/hdf5", []string{"formats"}},
	{"formats/protowire", []string{"formats"}},
	{"formats/pyjson", nil},
	{"formats/modelcard", []string{"formats/pyjson"}},
	{"formats/sentencepiece", []string{"formats/protowire"}},
	{"formats/onnx", []string{"formats", "formats/protowire"}},
	{"formats/frames", []string{"formats"}},
	{"formats/arrow", []string{"formats"}},
	{"formats/trees", []string{"formats"}},
	{"formats/tensorflow", []string{"formats", "formats/protowire"}},
	{"formats/ocdbt", []string{"formats"}},
	{"formats/zarr", []string{"formats"}},
	{"formats/orbax", []string{"formats", "formats/ocdbt", "formats/zarr"}},
	{"formats/dcp", []string{"formats", "formats/pickle"}},
	{"formats/deepspeed", []string{"formats", "formats/pickle", "formats/torchzip"}},
	{"formats/archive", []string{"formats", "formats/zipdir"}},
	{"formats/canonical", []string{"formats"}},
	{"formats/detect", []string{"formats", "formats/archive", "formats/arrow", "formats/frames",
		"formats/gguf", "formats/hdf5", "formats/npy", "formats/onnx", "formats/pyobject",
		"formats/safetensors",
		"formats/tensorflow", "formats/torchlegacy", "formats/torchzip", "formats/trees", "formats/zipdir"}},
	{"index/manifest", []string{"cas", "formats", "cas/document"}},
	{"index", nil},
	{"index/anchors", []string{"cas", "cas/anchor", "cas/disk", "cas/locks"}},
	{"index/chunks", []string{"cas", "cas/disk", "cas/locks", "index/manifest"}},
	{"cas/remote/local", []string{"cas", "cas/codec", "cas/remote/objects", "cas/segment", "cas/store",
		"index/manifest"}},
	{"cas/remote/bring", []string{"cas", "cas/codec", "cas/delta", "cas/remote/fetch",
		"cas/remote/objects", "cas/remote/record", "cas/segment", "cas/store", "index/manifest"}},
	{"cas/remote/state", []string{"cas", "cas/remote/bucket", "cas/remote/objects", "cas/remote/record",
		"cas/remote/writer", "index/chunks"}},
	{"cas/remote/cache", []string{"cas/disk", "cas/remote/bucket", "cas/remote/record"}},
	{"cas/remote/tier", []string{"cas", "cas/codec", "cas/delta", "cas/remote/bucket", "cas/remote/cache",
		"cas/remote/fetch", "cas/remote/patient", "cas/remote/record", "cas/segment", "cas/store",
		"index/manifest"}},
	{"cas/remote/remotetest", []string{"cas", "cas/codec", "cas/disk", "cas/recipe", "cas/remote/bucket",
		"cas/remote/local", "cas/remote/record", "cas/remote/state", "cas/remote/writer", "cas/segment",
		"cas/store", "formats", "index/chunks", "index/manifest"}},
	{"cas/remote/index", []string{"cas", "cas/remote/bucket", "cas/remote/fetch", "cas/remote/heads",
		"cas/remote/names", "cas/remote/record", "index/manifest"}},
	{"cas/remote/reuse", []string{"cas", "cas/codec", "cas/remote/fetch", "cas/remote/index",
		"cas/remote/objects", "cas/remote/record", "cas/segment", "index/manifest"}},
	{"index/artifacts", []string{"cas", "index/chunks"}},
	{"index/graph", []string{"cas", "formats", "cas/document"}},
	{"index/graph/source", []string{"cas", "formats", "formats/detect", "formats/hdf5", "formats/onnx",
		"formats/protowire", "formats/safetensors", "formats/zipdir", "index/graph"}},
	{"index/graph/graphtest", []string{"index/graph"}},
	{"index/prefix", []string{"cas", "cas/locks", "formats", "cas/document", "index/graph"}},
	{"index/lineage", []string{"cas", "cas/locks", "cas/document"}},
	{"index/ledger", []string{"cas", "cas/document", "index/lineage"}},
	{"index/runs", nil},
	{"fs/control", []string{"cas", "cas/remote/bucket"}},
	{"fs/policy", []string{"index/runs"}},
	{"fs/tree", []string{"cas", "cas/disk", "cas/locks"}},
	{"fs/policy/live", []string{"cas/disk", "cas/locks", "fs/policy", "fs/tree"}},
	{"fs/handover", nil},
	{"fs/view", []string{"cas/locks", "formats", "formats/detect", "formats/npy", "formats/safetensors"}},
	{"fs/plans/llamacpp", []string{"formats", "formats/gguf", "formats/modelcard", "formats/pyjson",
		"formats/sentencepiece"}},
	{"fs/plans", []string{"cas/half", "cas/quant", "formats", "formats/dcp", "formats/deepspeed",
		"formats/gguf", "formats/pickle", "formats/safetensors", "formats/torchzip", "fs/plans/llamacpp", "fs/view"}},
	{"fs/assemble", []string{"cas", "cas/locks", "cas/pages", "formats", "index/manifest"}},
	{"fs/recipes", []string{"cas", "cas/anchor", "cas/codec", "cas/half", "cas/quant", "cas/recipe",
		"formats", "index/manifest"}},
	{"fs/pack", []string{"cas", "cas/anchor", "cas/chunk", "cas/codec", "cas/locks", "cas/lowrank",
		"cas/recipe", "cas/segment", "formats", "formats/detect", "fs/recipes", "index/anchors",
		"index/manifest"}},
	{"fs/order", []string{"formats", "formats/detect", "fs/pack", "fs/recipes", "index/runs"}},
	{"fs/throttle", []string{"cas/locks"}},
	{"fs/content", []string{"cas", "cas/locks", "cas/pages", "cas/proven", "cas/scratch", "cas/store",
		"formats", "formats/detect", "formats/safetensors", "fs/assemble", "fs/control", "fs/pack", "fs/tree", "fs/view", "index/manifest"}},
	{"fs/names", []string{"cas/locks", "fs/content", "fs/handover", "fs/tree"}},
	{"fs/bases", []string{"cas", "cas/anchor", "cas/codec", "cas/locks", "formats", "formats/detect",
		"fs/pack", "fs/recipes", "fs/tree", "index/anchors", "index/manifest", "index/runs"}},
	{"fs/artifacts", []string{"cas", "cas/locks", "formats", "formats/canonical", "index/artifacts"}},
	{"fs/steps", []string{"cas", "cas/document", "cas/locks", "cas/remote/record", "formats", "formats/dcp",
		"formats/safetensors", "formats/torchzip", "fs/control", "fs/tree", "fs/view", "index/ledger", "index/runs"}},
	{"fs/derived", []string{"cas", "cas/codec", "cas/quant", "cas/recipe", "cas/segment", "formats",
		"fs/control", "fs/recipes", "index/manifest"}},
	{"fs/verify", []string{"cas", "cas/recipe", "formats", "fs/control", "fs/derived", "fs/recipes",
		"index/manifest"}},
	{"fs/inspect", []string{"cas", "cas/disk", "cas/segment", "cas/spilled", "formats", "formats/canonical",
		"formats/dcp",
		"formats/detect",
		"formats/npy", "formats/numbers", "formats/onnx", "formats/orbax", "formats/safetensors",
		"formats/zarr", "fs/control", "fs/derived", "fs/steps", "fs/tree", "fs/verify", "fs/view",
		"index/manifest", "index/runs"}},
	{"fs/models", []string{"cas", "cas/codec", "cas/disk", "cas/locks", "cas/remote/record", "cas/store",
		"formats", "formats/safetensors", "fs/control", "fs/derived", "fs/inspect", "fs/steps", "fs/tree",
		"cas/document", "index/graph",
		"index/graph/source", "index/ledger", "index/lineage", "index/manifest", "index/prefix",
		"index/runs"}},
	{"fs/residency", []string{"cas/locks", "fs/content", "fs/control", "fs/throttle"}},
	{"fs/idle", []string{"cas/locks", "fs/content"}},
	{"fs/queue", []string{"cas", "formats", "cas/disk", "cas/locks", "cas/store", "fs/bases", "fs/content",
		"fs/control", "fs/order", "fs/pack", "fs/throttle", "fs/tree", "index/runs"}},
	{"fs/estimate", []string{"cas", "cas/disk", "cas/dry", "formats", "fs/bases", "fs/content", "fs/control",
		"fs/order", "fs/pack", "fs/tree", "index/manifest", "index/runs"}},
	{"fs/virtual/ways", []string{"formats", "formats/dcp", "fs/plans"}},
	{"fs/virtual/patches", []string{"cas/locks", "fs/inspect"}},
	{"fs/virtual", []string{"cas", "cas/locks", "formats", "formats/canonical", "formats/dcp", "formats/deepspeed", "formats/safetensors",
		"fs/artifacts", "fs/content", "fs/control", "fs/inspect", "fs/models", "fs/names", "fs/plans",
		"fs/plans/llamacpp", "fs/virtual/patches", "fs/virtual/ways",
		"fs/steps", "fs/tree", "fs/view", "index/runs"}},
	{"fs/maintenance", []string{"cas", "cas/codec", "cas/damage", "cas/disk", "cas/kept", "cas/remote/bucket",
		"cas/salvage", "cas/scratch", "cas/segment", "cas/spilled", "cas/store",
		"fs/artifacts", "fs/assemble", "fs/bases", "fs/content", "fs/control", "fs/idle", "fs/models",
		"fs/names", "fs/pack", "fs/queue", "fs/residency", "fs/throttle", "fs/tree", "index/chunks",
		"index/manifest", "index/runs"}},
	{"fs/usage", []string{"cas", "cas/codec", "cas/disk", "cas/locks", "cas/segment", "cas/spilled",
		"cas/store", "fs/control", "fs/maintenance",
		"fs/names", "fs/steps", "fs/tree", "index/chunks", "index/manifest", "index/runs"}},
	{"fs/share/contact", []string{"cas/remote/bucket", "cas/remote/patient", "cas/remote/record",
		"fs/control"}},
	{"fs/share/removals", []string{"cas/disk", "cas/remote/record"}},
	{"fs/share/tell", []string{"fs/content", "fs/names"}},
	{"fs/share/known", []string{"cas", "cas/document", "cas/remote/record"}},
	{"fs/share/attrs", []string{"cas/remote/record", "fs/names", "fs/steps"}},
	{"fs/share/yield", nil},
	{"fs/share/shared", []string{"cas/remote/record", "fs/control", "fs/names", "fs/steps", "fs/tree"}},
	{"fs/share/changed", []string{"fs/share/shared", "fs/steps"}},
	{"fs/share/rested", []string{"cas/remote/record", "fs/content", "fs/names", "fs/share/shared",
		"fs/steps"}},
	{"fs/share/versions", []string{"cas/remote/heads", "cas/remote/names", "cas/remote/record", "fs/control",
		"fs/share/shared"}},
	{"fs/share", []string{"fs/share/attrs", "fs/share/changed", "fs/share/contact", "fs/share/known",
		"fs/share/removals", "fs/share/rested", "fs/share/shared", "fs/share/tell", "fs/share/versions",
		"fs/share/yield",
		"cas", "cas/disk", "cas/document", "cas/remote", "cas/remote/bring",
		"cas/remote/bucket", "cas/remote/fetch", "cas/remote/heads", "cas/remote/index", "cas/remote/local",
		"cas/remote/names", "cas/remote/objects", "cas/remote/record", "cas/remote/reuse",
		"cas/remote/writer", "cas/segment", "cas/store",
		"cas/remote/bucket", "cas/remote/fetch", "cas/remote/heads", "cas/remote/local", "cas/remote/mend",
		"cas/remote/names",
		"cas/remote/objects", "cas/remote/record", "cas/remote/writer", "cas/segment", "cas/store",
		"fs/content", "fs/control", "fs/names", "fs/pack", "fs/steps", "fs/tree"}},
	{"fs/volume", []string{"cas", "cas/disk", "cas/proven", "cas/remote", "cas/remote/bucket",
		"cas/remote/cache",
		"cas/remote/fetch", "cas/remote/tier", "cas/remote/heads",
		"cas/remote/record", "cas/remote/state", "cas/store", "formats", "formats/canonical",
		"formats/safetensors", "fs/artifacts", "fs/assemble", "fs/bases", "fs/content", "fs/control",
		"fs/idle", "fs/inspect", "fs/maintenance", "fs/models", "fs/names", "fs/pack", "fs/policy",
		"fs/policy/live", "fs/queue", "fs/residency", "fs/share", "fs/share/versions", "fs/steps",
		"fs/throttle", "fs/tree", "fs/usage", "fs/view", "fs/virtual", "fs/virtual/ways", "index/anchors", "index/artifacts", "index/chunks", "index/graph/source",
		"index/manifest", "index/runs"}},
	{"fs/inplace", []string{"cas", "cas/disk", "cas/remote/record", "fs/tree"}},
	{"fs/metrics", []string{"fs/control"}},
	{"fs/takeout", []string{"cas", "fs/control"}},
	{"fs/fusefs", []string{"cas", "fs/content", "fs/control", "fs/handover", "fs/names", "fs/tree",
		"fs/volume"}},
	{"cmd/ckptfs/text", []string{"fs/control"}},
	{"cmd/ckptfs/text/plot", nil},
	{"cmd/ckptfs/text/texttest", nil},
	{"cmd/ckptfs/files", []string{"cas", "cmd/ckptfs/text", "fs/control", "fs/takeout"}},
	{"cmd/ckptfs/heap", nil},
	{"cmd/ckptfs/memory", []string{"cmd/ckptfs/heap", "fs/volume"}},
	{"cmd/ckptfs/size", nil},
	{"cmd/ckptfs/space", []string{"cas/disk", "cmd/ckptfs/heap", "cmd/ckptfs/text", "fs/control",
		"fs/estimate"}},
	{"cmd/ckptfs/procs", []string{"cmd/ckptfs/text"}},
	{"cmd/ckptfs/unmount", []string{"cmd/ckptfs/procs", "cmd/ckptfs/text", "fs/control"}},
	{"cmd/ckptfs/host", nil},
	{"cmd/ckptfs/exit", []string{"cas", "cas/remote/bucket", "cmd/ckptfs/host", "fs/control", "fs/tree"}},
	{"cmd/ckptfs/args", []string{"cmd/ckptfs/exit", "cmd/ckptfs/text"}},
	{"cmd/ckptfs/place/placetest", []string{"fs/tree"}},
	{"cmd/ckptfs/place", []string{"cmd/ckptfs/exit", "cmd/ckptfs/procs", "cmd/ckptfs/text", "fs/inplace",
		"fs/tree"}},
	{"cmd/ckptfs/inout", []string{"cas", "cas/disk", "cmd/ckptfs/host", "cmd/ckptfs/place",
		"cmd/ckptfs/procs", "cmd/ckptfs/text", "cmd/ckptfs/unmount", "fs/control", "fs/fusefs", "fs/inplace", "fs/takeout", "fs/tree", "fs/volume"}},
	{"cmd/ckptfs/rundir", []string{"cmd/ckptfs/procs"}},
	{"cmd/ckptfs/tensors", []string{"cmd/ckptfs/args", "cmd/ckptfs/exit", "cmd/ckptfs/place",
		"cmd/ckptfs/size", "cmd/ckptfs/text", "fs/control"}},
	{"cmd/ckptfs/models", []string{"cmd/ckptfs/args", "cmd/ckptfs/exit", "cmd/ckptfs/place",
		"cmd/ckptfs/rundir", "cmd/ckptfs/space", "cmd/ckptfs/text", "cmd/ckptfs/text/plot", "formats",
		"formats/dcp", "formats/deepspeed", "formats/detect",
		"fs/control", "fs/policy", "fs/steps", "fs/view", "index/runs"}},
	{"cmd/ckptfs/linked", []string{"cmd/ckptfs/place", "fs/control"}},
	{"cmd/ckptfs/policy", []string{"cmd/ckptfs/args", "cmd/ckptfs/linked", "cmd/ckptfs/place",
		"cmd/ckptfs/text", "fs/control", "fs/policy"}},
	{"cmd/ckptfs/ui/known", []string{"fs/control", "index/runs"}},
	{"cmd/ckptfs/ui/curve", nil},
	{"cmd/ckptfs/ui/layers", []string{"fs/control"}},
	{"cmd/ckptfs/ui/moves", []string{"cmd/ckptfs/ui/known", "cmd/ckptfs/ui/layers", "fs/control"}},
	{"cmd/ckptfs/ui", []string{"cmd/ckptfs/args", "cmd/ckptfs/place", "cmd/ckptfs/text", "cmd/ckptfs/ui/curve",
		"cmd/ckptfs/ui/known", "cmd/ckptfs/ui/layers", "cmd/ckptfs/ui/moves", "formats",
		"formats/numbers", "fs/control", "fs/steps", "index/runs"}},
	{"cmd/ckptfs/holder", nil},
	{"cmd/ckptfs/later", nil},
	{"cmd/ckptfs/man", nil},
	{"cmd/ckptfs/logs", []string{"fs/tree"}},
	{"cmd/ckptfs/systemd", nil},
	{"cmd/ckptfs/scrape", []string{"fs/metrics"}},
	{"cmd/ckptfs/remote", []string{"cas", "cas/remote", "cas/remote/audit", "cas/remote/bucket",
		"cas/remote/index", "cas/remote/patient", "cas/remote/probe", "cas/remote/rated",
		"cas/remote/record", "cas/remote/survey", "cas/remote/sweep", "cas/remote/web", "cmd/ckptfs/size",
		"cmd/ckptfs/text", "fs/control", "fs/steps", "fs/tree"}},
	{"cmd/ckptfs", []string{"cas", "cas/remote/bucket", "cas/simd", "cmd/ckptfs/args", "cmd/ckptfs/exit",
		"cmd/ckptfs/files", "cmd/ckptfs/heap", "cmd/ckptfs/holder", "cmd/ckptfs/host",
		"cmd/ckptfs/inout", "cmd/ckptfs/later", "cmd/ckptfs/linked", "cmd/ckptfs/logs", "cmd/ckptfs/man",
		"cmd/ckptfs/memory", "cmd/ckptfs/models", "cmd/ckptfs/place", "cmd/ckptfs/policy", "cmd/ckptfs/procs",
		"cmd/ckptfs/remote", "cmd/ckptfs/rundir", "cmd/ckptfs/scrape", "cmd/ckptfs/size",
		"cmd/ckptfs/space", "cmd/ckptfs/systemd", "cmd/ckptfs/tensors", "cmd/ckptfs/text",
		"cmd/ckptfs/ui", "cmd/ckptfs/unmount", "fs/control", "fs/fusefs", "fs/handover", "fs/inplace",
		"fs/metrics", "fs/tree", "fs/volume"}},
}

// only are imports from outside of the module that one package keeps to itself, with those that may have
// them.
var only = map[string][]string{
	"github.com/hanwen/go-fuse/v2":  {"fs/fusefs"},
	"go.etcd.io/bbolt":              {"index/chunks"},
	"github.com/klauspost/compress": {"cas/codec", "formats/ocdbt", "formats/zarr"},
	"github.com/zeebo/blake3":       {"cas/blake3"},
	"github.com/spf13/cobra": {"cmd/ckptfs", "cmd/ckptfs/args", "cmd/ckptfs/exit", "cmd/ckptfs/files",
		"cmd/ckptfs/inout", "cmd/ckptfs/man", "cmd/ckptfs/models", "cmd/ckptfs/policy", "cmd/ckptfs/remote",
		"cmd/ckptfs/space", "cmd/ckptfs/tensors", "cmd/ckptfs/ui"},
	"github.com/aws": {"cas/remote/s3"},
	"log":            {},
	"log/slog": {"fs/artifacts", "fs/content", "fs/idle", "fs/maintenance", "fs/models", "fs/names",
		"fs/queue", "fs/residency", "fs/share", "fs/share/contact", "fs/virtual", "fs/volume", "fs/fusefs",
		"cmd/ckptfs", "cmd/ckptfs/logs"},
	"net/http": {"cas/remote/transport", "cas/remote/s3", "cas/remote/s3/s3test", "cas/remote/web",
		"fs/control", "fs/metrics", "cmd/ckptfs", "cmd/ckptfs/scrape", "cmd/ckptfs/ui"},
	"github.com/prometheus": {"fs/metrics"},
	"flag":                  {"cas/golden"},
}

const module = "ckptfs"

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Skipf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// inside is a package's path in the module, "" for one from outside.
func inside(p string) string {
	rest, ok := strings.CutPrefix(p, module+"/")
	if !ok {
		return ""
	}
	return rest
}

// Imports point downwards only.
func TestImports(t *testing.T) {
	place := map[string]int{}
	for i, l := range layers {
		place[l.pkg] = i
		for _, m := range l.may {
			if j, ok := place[m]; !ok || j >= i {
				t.Errorf("the table lets %s import %s, which is not above it", l.pkg, m)
			}
		}
	}
	for _, p := range list(t) {
		name := inside(p.ImportPath)
		if strings.HasPrefix(name, "integration") || strings.HasPrefix(name, "scripts") {
			checkOutside(t, p)
			continue
		}
		i, ok := place[name]
		if !ok {
			t.Errorf("package %s has no place in the table of this test", name)
			continue
		}
		for _, imp := range p.Imports {
			if in := inside(imp); in != "" {
				if !slices.Contains(layers[i].may, in) {
					t.Errorf("%s imports %s", name, in)
				}
				continue
			}
			for prefix, who := range only {
				if (imp == prefix || strings.HasPrefix(imp, prefix+"/") && strings.Contains(prefix, ".")) &&
					!slices.Contains(who, name) {
					t.Errorf("%s imports %s", name, imp)
				}
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			if in := inside(imp); strings.HasPrefix(in, "integration") ||
				strings.HasPrefix(in, "cmd/") && !strings.HasPrefix(name, "cmd/") {
				t.Errorf("the tests of %s import %s", name, in)
			}
		}
		for _, bad := range []string{"util", "utils", "common", "helper", "helpers", "internal",
			"manager", "misc"} {
			if slices.Contains(strings.Split(name, "/"), bad) {
				t.Errorf("package %s is named %s, which says nothing", name, bad)
			}
		}
	}
}

// checkOutside holds that the programs around the module use it from outside: by the binary, not by its
// packages below the formats.
func checkOutside(t *testing.T, p pkg) {
	t.Helper()
	for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		// posixtest is go-fuse's own suite, for any mount; the loopback is what the benchmarks stand beside.
		if inside(p.ImportPath) == "integration/bench/loopback" {
			continue
		}
		if strings.HasPrefix(imp, "github.com/hanwen/go-fuse") && !strings.HasSuffix(imp, "/posixtest") {
			t.Errorf("%s imports %s", p.ImportPath, imp)
		}
	}
}

// Only the program and the FUSE adapter log: the volume knows the levels of log/slog and none of its
// functions. Nothing runs by being imported.
func TestNoLoggingNoInit(t *testing.T) {
	for _, p := range list(t) {
		name := inside(p.ImportPath)
		mayLog := slices.Contains([]string{"fs/fusefs", "cmd/ckptfs", "cmd/ckptfs/logs"}, name) ||
			strings.HasPrefix(name, "integration") || strings.HasPrefix(name, "scripts")
		for _, file := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
					t.Errorf("%s: an init function", fset.Position(fn.Pos()))
				}
			}
			if mayLog {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := sel.X.(*ast.Ident)
				if !ok || x.Obj != nil { // a local variable of that name
					return true
				}
				switch {
				case x.Name == "slog" && sel.Sel.Name != "Level" && !strings.HasPrefix(sel.Sel.Name, "Level"),
					x.Name == "fmt" && strings.HasPrefix(sel.Sel.Name, "Print"),
					x.Name == "os" && (sel.Sel.Name == "Stdout" || sel.Sel.Name == "Stderr" ||
						sel.Sel.Name == "Exit"):
					t.Errorf("%s: %s.%s in %s", fset.Position(sel.Pos()), x.Name, sel.Sel.Name,
						path.Join(name, file))
				}
				return true
			})
		}
	}
}
