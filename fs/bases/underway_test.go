package bases

import (
	"context"
	"testing"
	"testing/synctest"
)

// A file waits for those that are alike and came before it, and for no other.
func TestUnderway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u underway
		here := map[string]func(){}
		come := func(ctx context.Context, name string, signs ...uint64) {
			go func() { here[name] = u.come(ctx, signs) }()
			synctest.Wait()
		}
		want := func(name string, is bool) {
			t.Helper()
			if synctest.Wait(); (here[name] != nil) != is {
				t.Errorf("%s came: %v, want %v", name, !is, is)
			}
		}
		come(t.Context(), "base", 1, 2, 3, 4)
		come(t.Context(), "other", 11, 12, 13, 14)
		ctx, cancel := context.WithCancel(t.Context())
		come(ctx, "removed", 1, 2, 3, 4)
		come(t.Context(), "fine-tune", 1, 2, 3, 9)
		want("base", true)
		want("other", true)
		want("removed", false)
		want("fine-tune", false)
		cancel()
		want("removed", true)
		here["base"]()
		here["base"]() // nothing more
		want("fine-tune", false)
		here["removed"]()
		want("fine-tune", true)
		here["fine-tune"]()
		here["other"]()
		if len(u.files) > 0 {
			t.Error("some stay")
		}
	})
}

// A file without signs waits for none, nor does any for it.
func TestUnderwayWithoutSigns(t *testing.T) {
	var u underway
	defer u.come(t.Context(), nil)()
	defer u.come(t.Context(), nil)()
	defer u.come(t.Context(), []uint64{1})()
}
