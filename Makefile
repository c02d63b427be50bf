# Targets are thin: what they do is in scripts/, and runs by hand just as well.
GO       ?= go
ifeq ($(HOME),)
export HOME := $(shell getent passwd "$$(id -u)" | cut -d: -f6)
endif
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
ROUNDS   ?= 5
SIZE     ?= 1G
FUZZTIME ?= 30s
TORTURE_TIME ?= 20m
BENCH     = CKPTFS_PYTHON="$$(scripts/setup)" && export CKPTFS_PYTHON && \
            $(GO) run ./integration/bench -size $(SIZE) -rounds $(ROUNDS) $(BENCHFLAGS)

.PHONY: build dist test unit arm64 integration packages posix clients race lint demo bench bench-io bench-dedup bench-clients \
	bench-small bench-storage bench-steps bench-grown bench-training bench-codec bench-lineage bench-evostore \
	bench-scale bench-recipes bench-serving bench-remote bench-ui fuzz interleavings torture torture-remote clean install uninstall

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ckptfs ./cmd/ckptfs

# What is published: packages, wheels, an image, checksums; in dist/.
dist:
	cd packaging && $(GO) run . -version "$(VERSION)"

# Everything the tests need is set up first (scripts/setup): on a fresh machine that installs fuse3, torch and
# the suites.
test:
	scripts/test unit arm64 integration packages

unit:
	scripts/test unit

arm64:
	scripts/test arm64

integration:
	scripts/test integration

# What dist makes, made twice and installed.
packages:
	scripts/test packages

# Every client in every condition, on every kind of mount; CKPTFS_CLIENT_SIZE is the bytes that each saves.
clients:
	scripts/test clients

# The POSIX suites in full size; those of the tests are small.
posix:
	scripts/test posix

# What runs at the same time; the parsers and codecs have no state to share. lockrank: the order of locks is
# checked. What computes or enumerates for long in one goroutine is left out: the detector slows it 10 times, and has
# nothing to find.
LONG_ALONE = Samples|Enough|SweepCrash|CompactCrash|DeltaModel|TakeBackRandomly|DeltaHostile|LowRank|SeekInVain|Following
LONG_ALONE := $(LONG_ALONE)|IndexDamageIsMended|WorkIsBounded|DeltaCrash|ListingOf|FullKin|KilledKin|KilledAnywhere|FrozenStores|SameBaseModel|Visible|Anchors|Partitions
race:
	CGO_ENABLED=1 scripts/gotest -race -tags lockrank -short -skip '^Test[A-Za-z]*($(LONG_ALONE))' -timeout 30m ./cas/disk ./cas/locks ./cas/segment ./cas/store/... \
		./index/... ./fs/...

lint:
	scripts/lint

# Builds what it needs itself, beside the set-up.
demo:
	scripts/demo

bench: build
	$(BENCH)

bench-io: build
	$(BENCH) -only write,read,torch,partial

# Real programs' save and load, small and at the size of checkpoints, torchcachex's pattern, inference
# servers.
bench-clients: build
	$(BENCH) -only clients,cachex,servers

bench-small: build
	$(BENCH) -only small

# What a training loop notices of packing.
bench-training: build
	$(BENCH) -only training

# What series of checkpoints take: as files, in DVC's cache, in restic (Debian's), in a store. -clients names
# some of them.
bench-storage: build
	PYTHONPATH="$$(scripts/setup-peers)" && export PYTHONPATH && $(BENCH) -only storage

# Of each save of a training run, from its first steps to convergence, what it takes alone and as a delta, and
# which was chosen.
bench-steps: build
	$(BENCH) -only steps

# What packing a save of a boosted model takes as the model grows, beside hashing it; some minutes. -clients
# names some of the kinds.
bench-grown: build
	PYTHONPATH="$$(scripts/setup-peers)" && export PYTHONPATH && $(BENCH) -only grown

# Sizes and speeds of coding chunks, beside other programs; what the data are is trained first, once, in
# minutes. BIGSMALL=1 adds BigSmall, which takes minutes by itself.
bench-codec:
	CKPTFS_PYTHON="$$(scripts/setup)" && export CKPTFS_PYTHON && PYTHONPATH="$$(scripts/setup-peers)" && export PYTHONPATH && \
	data="$$(dirname "$$PYTHONPATH")/codec-data" && \
	if [ ! -e "$$data/sets.json" ]; then $$CKPTFS_PYTHON integration/programs/codec_data.py "$$data"; fi && \
	$(GO) run ./integration/bench/codec -data "$$data" -rounds $(ROUNDS)

# The longest common prefix among 60,000 architectures, beside a scan and Redis (Debian's); what a match takes
# on a mount; some minutes. LINEAGE=lineage or asking runs one of the two.
LINEAGE ?= lineage,asking
bench-lineage: build
	scripts/setup-peers >/dev/null
	$(BENCH) -only $(LINEAGE)

# EvoStore's experiments in small: writes of models of which a part changed, by several writers (models are a
# tenth of SIZE); what 1,000 candidates of a network architecture search take. EVOSTORE=evostore or nas runs
# one of the two.
EVOSTORE ?= evostore,nas
bench-evostore: build
	$(BENCH) -only $(EVOSTORE)

# What a store of very many small files and steps takes to mount, to pack, to ask and to look through, beside
# the aims; 20,000 files take some minutes, a million some hours and 12 GB.
SCALE_FILES ?= 20000
bench-scale: build
	$(GO) run ./integration/bench -only scale -files $(SCALE_FILES) $(BENCHFLAGS)

# What a model takes that is there in many precisions (GGUF quantised by ggml, FP8), beside zstd and ZipLLM's
# scheme: a small Llama, MiniLM, a wider Llama for the speeds, merges and layouts; some minutes. RECIPES=llama,merges
# runs one of them.
RECIPES ?= llama,minilm,wide,merges,layouts
bench-recipes: build
	scripts/setup-ggml
	PYTHONPATH="$$(scripts/setup-peers)" && export PYTHONPATH && $(BENCH) -only recipes -clients $(RECIPES)

# A model of SERVING_SIZE that inference servers load, each in its pattern, in each state, at 1, 4 and 8 processes;
# an hour at 1G. BENCHFLAGS='-clients mmap,whole -processes 1 -states packed' runs a part.
SERVING_SIZE ?= 4G
bench-serving: build
	scripts/setup-engine
	CKPTFS_PYTHON="$$(scripts/setup)" && export CKPTFS_PYTHON && scripts/setup-servers >/dev/null && \
	$(GO) run ./integration/bench -only serving -size $(SERVING_SIZE) -rounds $(ROUNDS) $(BENCHFLAGS)

# What reading from and publishing to a remote take behind a simulated network, beside plain transfers of as many
# bytes: first by a clock of its own, where nothing but the network takes time, then on an engine.
bench-remote:
	$(GO) test ./cas/remote/remotetest -run Network -count 1 -v -timeout 10m
	scripts/setup-engine
	CKPTFS_BIN=/bin/true $(GO) test ./integration/remote -run '^$$' -bench 'Remote|Beside' -benchtime 1x -timeout 30m

# What the pages of ckptfs ui take of RUNS runs of 100 steps each; 1,000 take some minutes.
RUNS ?= 1000
bench-ui:
	CKPTFS_PAGES_RUNS=$(RUNS) $(GO) test ./integration/pages -run TestSpeed -count 1 -v -timeout 20m

bench-dedup: build
	$(BENCH) -only dedup,resnet

# All interleavings of pushes and collections with up to three preemptions, or two deviations with faults (three
# in two scenes), and 100,000 seeds of each scene; about an hour of one core.
interleavings:
	CKPTFS_INTERLEAVINGS=full $(GO) test -timeout 6h -v -run TestInterleavings ./cas/remote/sweep

fuzz:
	FUZZTIME=$(FUZZTIME) scripts/fuzz

# Kills the daemon under real writers, over and over; prints cycles survived, files verified, losses.
torture:
	$(GO) run ./integration/torture -time $(TORTURE_TIME) $(TORTUREFLAGS)

# Kills daemons of machines that share a remote, commands and the object store, over and over.
torture-remote:
	scripts/setup-engine
	$(GO) run ./integration/torture/remote -time $(TORTURE_TIME) $(TORTUREFLAGS)

# PREFIX (/usr/local), DESTDIR and HELPERDIR say where to.
install: build
	scripts/install

uninstall:
	scripts/install --uninstall

clean:
	rm -rf bin
	$(GO) clean -testcache
