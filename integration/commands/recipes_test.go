package commands

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"ckptfs/integration/mounttest"
)

// recipes are the blocks of docs/recipes-for-users.md, by their headings.
func recipes(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/recipes-for-users.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, rest, _ := strings.Cut(section, "\n")
		_, rest, found := strings.Cut(rest, "```sh\n")
		block, _, _ := strings.Cut(rest, "```")
		if lines := strings.Count(block, "\n"); !found || lines > 5 {
			t.Errorf("%s: a block of %d lines", heading, lines)
		}
		blocks[heading] = block
	}
	return blocks
}

// kitchen is a machine of its own, below one folder, where a recipe is tried.
type kitchen struct {
	t    *testing.T
	root string
	env  []string
}

func newKitchen(t *testing.T) *kitchen {
	mounttest.NeedRoot(t, "as the recipes do")
	mounttest.NeedFUSE(t)
	k := &kitchen{t: t, root: t.TempDir()}
	k.env = append(os.Environ(), "HOME="+k.at("home"), "TMPDIR="+k.at("tmp"), "SLURM_JOB_NAME=job", "LC_ALL=C")
	for _, dir := range []string{"home", "tmp", "data", "mnt", "var/lib"} {
		k.must(os.MkdirAll(k.at(dir), 0o755))
	}
	t.Cleanup(func() {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(k.root))
		if err != nil {
			t.Error(err)
		}
		for _, m := range mounts {
			if out, err := exec.Command(mounttest.Bin, "umount", m.Mountpoint).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
	return k
}

func (k *kitchen) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *kitchen) at(elem ...string) string {
	return filepath.Join(append([]string{k.root}, elem...)...)
}

// write makes a file that is stored, and returns its bytes.
func (k *kitchen) write(name string, seed uint64) {
	k.t.Helper()
	k.must(os.MkdirAll(filepath.Dir(k.at(name)), 0o755))
	k.must(os.WriteFile(k.at(name), mounttest.Noise(seed, mib), 0o644))
}

// want compares a file with what write made.
func (k *kitchen) want(name string, seed uint64) {
	k.t.Helper()
	got, err := os.ReadFile(k.at(name))
	if err != nil || string(got) != string(mounttest.Noise(seed, mib)) {
		k.t.Errorf("%s: %d other bytes, %v", name, len(got), err)
	}
}

// shell does what a recipe says, with the places of this machine. Programs that it has not got are played by
// functions.
func (k *kitchen) shell(block string, places ...string) *exec.Cmd {
	for _, place := range []string{"/data", "/mnt", "/var/lib", "/usr/share/ollama", "/models"} {
		places = append(places, " "+place, " "+k.root+place)
	}
	python, _ := mounttest.Interpreter() // a recipe that has use for it has failed without
	script := fmt.Sprintf(`set -e
ckptfs() { '%s' "$@"; }
hf() { '%s' -m huggingface_hub.cli.hf "$@"; }
systemctl() { echo "$1 $2"; }
python() { mkdir -p "$3/1"; head -c 3000000 /dev/zero | tr '\0' w > "$3/1/model.part"; mv "$3/1/model.part" "$3/1/model.bin"; }
python_on() { python "$@"; exec sleep 600; }
`, mounttest.Bin, python) + strings.NewReplacer(places...).Replace(block)
	cmd := exec.Command("sh", "-c", script)
	cmd.Env, cmd.Dir = k.env, k.root
	return cmd
}

// cook has a shell do what a recipe says, and returns what that printed.
func (k *kitchen) cook(block string, places ...string) string {
	k.t.Helper()
	cmd := k.shell(block, places...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		k.t.Fatalf("%v\n%s\n%s", err, cmd.Args[2], out)
	}
	return string(out)
}

// terminate ends a shell, and not what it waits for, once a file is there, and waits until it has ended.
func (k *kitchen) terminate(cmd *exec.Cmd, file string) {
	k.t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second // of what outlives the shell
	k.must(cmd.Start())
	defer time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() }).Stop()
	for _, err := os.Lstat(file); err != nil; _, err = os.Lstat(file) {
		if time.Sleep(20 * time.Millisecond); cmd.Process.Signal(syscall.Signal(0)) != nil {
			k.t.Fatalf("%s: %v", &said, err)
		}
	}
	k.must(cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() < 0 {
		k.t.Fatalf("%v: %s", err, &said)
	}
	k.t.Logf("terminated: %s", &said)
}

// TestRecipes does what docs/recipes-for-users.md says.
func TestRecipes(t *testing.T) {
	blocks, tried := recipes(t), map[string]bool{}
	for heading, try := range map[string]func(k *kitchen, block string){
		"A Hugging Face cache": func(k *kitchen, block string) {
			home := k.at("home/.cache/huggingface")
			commit := strings.TrimSpace(mounttest.RunPython(k.t, "hub_cache.py", home))
			model := filepath.Join(home, "hub/models--people--model/snapshots", commit, "model.safetensors")
			before, err := os.ReadFile(model)
			k.must(err)
			mounttest.WantSaid(k.t, k.cook(block), "people/model")
			if after, err := os.ReadFile(model); err != nil || string(before) != string(after) {
				k.t.Errorf("%d bytes, %v", len(after), err)
			}
		},
		"A folder of fine-tunes": func(k *kitchen, block string) {
			k.write("data/finetunes/a/model.bin", 1)
			k.write("data/finetunes/b/model.bin", 2)
			mounttest.WantSaid(k.t, k.cook(block), "complete")
			k.want("mnt/ckpt/runs/finetunes/a/model.bin", 1)
			k.want("mnt/ckpt/runs/finetunes/b/model.bin", 2)
		},
		"A Slurm cluster": func(k *kitchen, block string) {
			e := mounttest.StartEngine(k.t)
			k.env = append(k.env, os.Environ()...)
			k.env = append(k.env, "HOME="+k.at("home"), "TMPDIR="+k.at("tmp"))
			k.cook(block, "https://s3.example.org", e.Endpoint, "s3://models/team", e.URL("team"))
			k.env = append(k.env, "TMPDIR="+k.at("home"), "SLURM_JOB_NAME=cut") // another node
			k.terminate(k.shell(strings.Replace(block, "python", "python_on", 1), "https://s3.example.org",
				e.Endpoint, "s3://models/team", e.URL("team")), k.at("home/ckpt/runs/cut/1/model.bin"))
			k.env = append(k.env, "TMPDIR="+k.at("var"))
			said := k.cook(strings.Replace(block, "python", "ls", 1), "https://s3.example.org", e.Endpoint,
				"s3://models/team", e.URL("team"), "train.py --out ", "")
			mounttest.WantSaid(k.t, said, "joined the remote of 2", "complete")
		},
		"A Kubernetes node": func(k *kitchen, block string) {
			k.write("data/model/model.bin", 1)
			k.cook(block)
			k.want("models/model.bin", 1)
			k.want("mnt/ckpt/runs/prod/7/model.bin", 1)
		},
		"An Ollama box": func(k *kitchen, block string) {
			data := mounttest.Noise(1, mib)
			blob := fmt.Sprintf("usr/share/ollama/.ollama/models/blobs/sha256-%x", sha256.Sum256(data))
			k.write(blob, 1)
			models := k.at("usr/share/ollama/.ollama/models")
			k.must(os.Chown(models, mounttest.Nobody, mounttest.Nobody))
			mounttest.WantSaid(k.t, k.cook(block), "stop ollama", "start ollama")
			k.want(blob, 1)
			out, err := exec.Command("stat", "-c", "%u", models).Output()
			if err != nil || string(out) != "65534\n" {
				k.t.Errorf("the folder is of user %s, %v", out, err)
			}
		},
		"A copy elsewhere": func(k *kitchen, block string) {
			k.write("data/finetunes/a/model.bin", 1)
			k.cook(blocks["A folder of fine-tunes"] + "ckptfs evict /mnt/ckpt\nckptfs umount /mnt/ckpt\n" + block)
			k.want("data/models/finetunes/a/model.bin", 1)
		},
	} {
		block, ok := blocks[heading]
		if !ok {
			t.Errorf("docs/recipes-for-users.md has no %q", heading)
		}
		tried[heading] = true
		t.Run(heading, func(t *testing.T) { try(newKitchen(t), block) })
	}
	for heading := range blocks {
		if !tried[heading] {
			t.Errorf("%q of docs/recipes-for-users.md is not tried here", heading)
		}
	}
}
