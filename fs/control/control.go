// Package control is how the command line talks to a volume: HTTP over the unix socket STORE/control.sock
// while a daemon has the store mounted, and the same HTTP in memory while none has. The handler, the client
// and the errors are the same both ways, so a command is written once.
//
// # Who may
//
// The socket has mode 0600. The peer's user, as the kernel tells it (SO_PEERCRED), must be the daemon's or
// root; anyone else gets 403. There is no other authentication, and no network.
//
// # Requests
//
// All are below /v1/. Paths are relative to the mount's root and travel in the query, percent-encoded, so
// that names that are not UTF-8 arrive whole. In JSON answers such a name's odd bytes read U+FFFD.
//
//	GET  /v1/stats                   Stats
//	GET  /v1/status                  Status
//	POST /v1/du                      Du; DuOptions, encoded as in a query, are the body
//	POST /v1/sync                    stream
//	POST /v1/evict?path=P            stream of a Moved
//	POST /v1/hydrate?path=P          stream of a Moved
//	POST /v1/unmount[?lazy=1]        {} once the mountpoint is free; the daemon then ends by itself
//	POST /v1/upgrade?program=P&…     {} when the daemon is about to end for that program; handover
//
//	POST /v1/forgot?path=P&step=S…   {} once the log has it that steps of a run were removed
//	POST /v1/dropped?path=P&file=F…  {} once the log has it that files of a run lost optimizer state
//	POST /v1/prune?…                 stream of a Pruned; PruneOptions
//	POST /v1/compact[?dry_run=1]     stream of a Compacted
//	POST /v1/check?…                 stream of a Checked; CheckOptions
//
//	GET  /v1/policy[?count=1]        Policy
//	POST /v1/policy?do=D&pattern=P…  Policy; PolicyChange
//
//	GET  /v1/show?path=P             File
//	POST /v1/inspect?path=P…         stream of a File; InspectOptions
//	GET  /v1/outline?path=P&…        Outline; OutlineOptions
//	GET  /v1/tensor?path=P&name=N    the bytes of a tensor; npy=1: as a .npy file
//	POST /v1/diff?a=P&b=P            stream of a Diff
//	GET  /v1/find?…                  Found; FindOptions
//
//	GET  /v1/runs                    RunList
//	GET  /v1/log?path=P              RunLog, whose steps are sent as they are described
//	GET  /v1/steps?path=P            RunLog
//	POST /v1/watch?path=P&…          stream of no result, with a line for each NewStep; FollowOptions
//	GET  /v1/best?path=P…            BestStep; metric, mode
//	GET  /v1/lineage?path=P          Lineage
//	GET  /v1/ancestor?a=P&b=P        CommonAncestor
//	GET  /v1/owner?path=P&tensor=N   Ownership
//	POST /v1/retire?path=P           Retired
//	POST /v1/match?…                 MatchAnswer; the graph is the body, MatchOptions the query
//
//	POST /v1/join                    {} when the remote is used that the store was joined to
//	POST /v1/push?path=P&…           stream of a Pushed; PushOptions
//	POST /v1/pull?path=P             stream of a Pulled
//	POST /v1/fetch                   Fetched
//	GET  /v1/conflicts?path=P        Conflicts
//	GET  /v1/deleted?path=P          Deletions
//	POST /v1/undelete?path=P         stream of an Undeleted
//	POST /v1/export-remote?name=N&path=P&serving=B   Exported
//	POST /v1/repair-remote?writer=W… stream of a RemoteRepaired
//
// # Answers
//
// A plain answer is one JSON object (200), or an Error's object (4xx, 5xx). A stream is 200 with one JSON
// object a line (application/x-ndjson): any number of progress lines, then exactly one result or error line.
// A stream that ends without one means that the daemon went away, and so does an object without an end.
//
//	{"progress":{"done_bytes":1048576,"total_bytes":4194304,"done_files":0,"total_files":1,"current":"runs/a/1/model.pt"}}
//	{"result":{"files":1,"bytes":4194304,"skipped":[]}}
//	{"error":{"code":"busy","message":"…","errno":"EBUSY"}}
//
// Progress lines are for people: a slow reader gets fewer of them, and always the last. Closing the
// connection cancels the request.
package control

// SocketName is the socket's name in the store's folder.
const SocketName = "control.sock"

// line is one line of a stream; one of its fields is set.
type line struct {
	Progress *Progress `json:"progress,omitempty"`
	Result   any       `json:"result,omitempty"`
	Error    *Error    `json:"error,omitempty"`
	// of the result, to whom asks for passes
	Tensors     []Tensor     `json:"tensors,omitempty"`
	Differences *TensorLists `json:"differences,omitempty"`
	Entries     []Entry      `json:"entries,omitempty"`
	// which became complete
	Step *NewStep `json:"step,omitempty"`
}
