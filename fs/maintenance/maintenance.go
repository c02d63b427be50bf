// Package maintenance looks through a whole store: the survey of a start, check, prune's mark, compact, and
// the repairs. It keeps nothing between two calls.
//
//	Survey        every file once after a start: queues what is not packed, and mends what an unclean end left
//	Check         every segment, every file and what it is made of; changes nothing
//	Prune         the mark of mark-and-sweep; cas/store has the sweep
//	Compact       stores again, file by file, what takes less room by now
//	RepairClosed  mends the index or the segments of a store that no process has open
//	RepairTree    mends the files of an open store that is not mounted
//
// All but the repairs run while files are saved, read, renamed and removed. A pass looks at a file without
// its lock. Before it reports or changes something it takes File.mu and looks again. A file that has changed
// meanwhile is left alone: the change queues what is to be done about it.
package maintenance
