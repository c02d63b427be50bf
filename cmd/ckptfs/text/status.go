package text

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"ckptfs/fs/control"
)

// NameFailures names the files that may have lost bytes, and those that something failed of, a line each.
func NameFailures(w io.Writer, s *control.Status) {
	paint := Paints(w)
	if l := s.Loss; l != nil {
		for _, f := range l.Files {
			fmt.Fprintf(w, paint.Bad("lost")+": %s: the disk did not take all that was written to it: %s (since %s)\n",
				Printable(f.Path), Printable(f.Reason), f.Since.Format(time.DateTime))
		}
		if l.More > 0 {
			fmt.Fprintf(w, paint.Bad("lost")+": %d more, which the log names\n", l.More)
		}
	}
	for _, f := range s.Failures {
		fmt.Fprintf(w, paint.Bad("failed")+": %s: %s (%s since %s)\n", Printable(f.Path), Printable(f.Reason),
			Plural(int64(f.Attempts), "attempt"), f.Since.Format(time.DateTime))
	}
}

// NamePlain names the files that stay plain though they are to be packed, a line each: that is no failure.
func NamePlain(w io.Writer, s *control.Status) {
	for _, f := range s.Plain {
		fmt.Fprintf(w, "ckptfs: %s stays plain: %s\n", Printable(f.Path), Printable(f.Reason))
	}
}

// Everything is all that is to be packed, in words, or all but what NamePlain names.
func Everything(s *control.Status) string {
	if len(s.Plain) > 0 {
		return "everything else"
	}
	return "everything"
}

// Status prints what a daemon is doing.
func Status(w io.Writer, st *control.Status) {
	paint := Paints(w)
	mounted, mode, process, waits := "no", "", "", ""
	if st.Mode != control.ModeUnmounted {
		waits = st.PackingWaits
		mounted = Printable(st.Mountpoint)
		mode = WithReason(st.Mode, st.ModeReason)
		process = fmt.Sprintf("%d since %s, ckptfs %s", st.PID, st.Started.Format(time.DateTime), st.Version)
	}
	metrics := ""
	if st.Metrics != "" {
		metrics = "http://" + st.Metrics + "/metrics"
	}
	unpacked := Bytes(st.UnpackedBytes)
	if st.MaxUnpacked > 0 && process != "" {
		unpacked += fmt.Sprintf("; from %s on, closing a written file waits", Bytes(st.MaxUnpacked))
	}
	if st.WaitingCloses > 0 {
		unpacked += fmt.Sprintf(", %s waiting", Plural(int64(st.WaitingCloses), "close"))
	}
	hot := "at most " + Bytes(st.HotSize)
	if st.HotSize < 0 {
		hot = "not bounded"
	}
	queue := fmt.Sprintf("%s, %s", Plural(int64(st.Queue.Files), "file"), Bytes(st.Queue.Bytes))
	copies := fmt.Sprintf("%s of packed files, %s", Bytes(st.ResidentBytes), hot)
	packing := namesOf(st.Packing)
	if st.Mode == control.ModeUnmounted { // who looks for a moment does not look at all names
		queue, unpacked, copies = "", "", ""
		packing = "not now: once the store is mounted the daemon looks at all names, and packs what is not packed"
	}
	Pairs(w,
		"store", Printable(st.Store),
		"mounted", mounted,
		"mode", mode,
		"process", process,
		"kernels", st.Kernels,
		"reads", readsText(st.ComparesBLAKE3),
		"metrics", metrics,
		"looking", lookingText(st),
		"queue", queue,
		"packing", packing,
		"waits", waits,
		"not packed", unpacked,
		"ids", idsText(st),
		"disk", diskText(&st.Upkeep),
		"pruned", prunedText(st.LastPrune),
		"checked", checkedText(st.LastCheck, paint),
		"copies", copies,
		"pinned", pinnedText(st),
		"open files", fmt.Sprint(st.OpenFiles),
		"recovery", Printable(st.Recovery),
		"remote", remoteText(st.Remote, paint),
	)
	if st.PolicyProblem != "" {
		fmt.Fprintf(w, paint.Doubtful("policy")+": %s; mend it, then `ckptfs policy load`\n", Printable(st.PolicyProblem))
	}
	for _, s := range st.Sidecars {
		fmt.Fprintf(w, paint.Doubtful("refused")+": %s\n", Printable(s))
	}
	if st.MoreSidecars > 0 {
		fmt.Fprintf(w, paint.Doubtful("refused")+": %d more\n", st.MoreSidecars)
	}
	NamePlain(w, st)
	NameFailures(w, st)
}

// pinnedText says what rules hold besides; nothing where none do.
func pinnedText(st *control.Status) string {
	if st.PinnedFiles == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s of copies that rules hold, beside those", Plural(int64(st.PinnedFiles), "file"),
		Bytes(st.PinnedBytes))
}

// readsText says that reads take longer, why, and until when; nothing where they do not.
func readsText(slower bool) string {
	if !slower {
		return ""
	}
	return "compare BLAKE3, which takes longer, as in a store that was copied; a `ckptfs check --read-data` of the mount that finds no damage ends that"
}

// lookingText says how far the start is; nothing of a store that no daemon has.
func lookingText(st *control.Status) string {
	if st.Looking == nil || st.Mode == control.ModeUnmounted {
		return ""
	}
	return fmt.Sprintf("at all names, %s so far; before that it is not known how much waits", Plural(*st.Looking, "file"))
}

// idsText says what is not found by its artifact id yet, and that nobody needs to wait for it; nothing of a
// store that no daemon has.
func idsText(st *control.Status) string {
	u := st.Unidentified
	if st.Mode == control.ModeUnmounted || u.Files == 0 && !u.More {
		return ""
	}
	more := ""
	if u.More {
		more = " and more"
	}
	return fmt.Sprintf("the artifact ids of %s%s are computed in the background; until then .ckptfs/artifacts does not show them",
		Plural(int64(u.Files), "packed file"), more)
}

// diskText is the disk of a store.
func diskText(u *control.Upkeep) string {
	if u.DiskBytes == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s free", Bytes(u.FreeBytes), Bytes(u.DiskBytes))
}

// prunedText is the last prune; nothing if there was none.
func prunedText(p *control.LastPrune) string {
	if p == nil {
		return ""
	}
	s := fmt.Sprintf("%s, %s freed", p.At.Format(time.DateTime), Bytes(p.FreedBytes))
	if p.ByItself {
		s += "; by itself, for the disk fills up"
	}
	return s
}

// remoteText is a remote, and whether it is one that nothing goes to.
func remoteText(r *control.RemoteStatus, paint Paint) string {
	if r != nil && (r.Problem != "" || r.Offline != nil) {
		return paint.Doubtful(Remote(r))
	}
	return Remote(r)
}

// CheckOf is the command, but for the path, that names all problems that are known after a check.
func CheckOf(c *control.LastCheck) string {
	if c.Data > 0 {
		return "ckptfs check --read-data"
	}
	return "ckptfs check"
}

// checkedText is the last check; nothing if there was none.
func checkedText(c *control.LastCheck, paint Paint) string {
	if c == nil {
		return ""
	}
	s := c.At.Format(time.DateTime)
	if c.ReadData {
		s += ", stored data too"
	}
	if c.Problems > 0 {
		s += "; " + paint.Bad("damage was found") + fmt.Sprintf(": %s, which `%s` names", Plural(c.Problems, "problem"), CheckOf(c))
		if !c.ReadData && c.DataAt != nil {
			s += fmt.Sprintf("; %s by reading data, at %s", humanize.Comma(c.Data), c.DataAt.Format(time.DateTime))
		}
		return s
	}
	return s + ", no damage found"
}

// namedFiles is how many files a line names: small ones are packed in groups of 64.
const namedFiles = 4

// namesOf names the first of some files, and says how many more there are.
func namesOf(paths []string) string {
	var b strings.Builder
	for i, p := range paths {
		switch {
		case i == namedFiles && len(paths) > i+1:
			fmt.Fprintf(&b, " and %d more", len(paths)-i)
			return b.String()
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(Printable(p))
	}
	return b.String()
}

// WithReason is a mode, and why it is that one.
func WithReason(mode, reason string) string {
	if reason == "" {
		return mode
	}
	return fmt.Sprintf("%s (%s)", mode, Printable(reason))
}

// NotKept says what becomes of so many bytes of local copies that a command made between two looks at the
// status, where they are more than --hot-size; "" where they are not. What a rule holds does not count.
func NotKept(before, after *control.Status, hydrated int64) string {
	hydrated -= max(after.PinnedBytes-before.PinnedBytes, 0)
	if after.HotSize < 0 || hydrated <= after.HotSize {
		return ""
	}
	return fmt.Sprintf("local copies of %s were made, and --hot-size is %s: the least recently used are evicted again; "+
		"`ckptfs pin` keeps them, or a mount with a larger --hot-size", Bytes(hydrated), Bytes(after.HotSize))
}
