package remote

import (
	"testing"

	"ckptfs/integration/mounttest"
)

// TestForgetRemote: folders of torch.distributed of which only the remote has some files stay, though their
// .metadata is here.
func TestForgetRemote(t *testing.T) {
	e := mounttest.StartEngine(t)
	a, b := joined(t, e, "team", "a"), joined(t, e, "team", "b")
	mounttest.RunPython(t, "dcp_optimizer.py", "save", a.Path())
	a.Run("push", a.Dir)
	b.Run("fetch", b.Dir)
	b.Run("policy", "add", "--in", b.Dir, "runs/**", "drop-optimizer", "keep-last=2")
	for _, step := range []string{"1", "2", "3"} {
		b.Run("pull", b.Path("runs/mixed", step, ".metadata"), b.Path("runs/fsdp", step, "optimizer_0/.metadata"))
	}
	if is := remoteState(b.Path("runs/mixed/1/.metadata")); is == "remote" {
		t.Errorf("what was pulled is %s", is)
	}
	if is := remoteState(b.Path("runs/mixed/1/__0_0.distcp")); is != "remote" {
		t.Errorf("what was not pulled is %s", is)
	}
	mounttest.WantSaid(t, b.Run("forget", "--policy", "--dry-run", b.Dir), "0 files")
	b.Run("pull", b.Path("runs/fsdp/1/optimizer_0/__0_0.distcp"))
	mounttest.WantSaid(t, b.Run("forget", "--policy", "--dry-run", b.Dir), "1 file", "fsdp/1/optimizer_0")
}
