package virtual

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"ckptfs/fs/content"
)

// otherFiles are files that were seen to be no safetensors files: a list of a folder below .ckptfs/make asks
// that of each file in it, and then each name of the list does.
type otherFiles struct {
	*lru.Cache[otherFile, struct{}]
}

// otherFile is one generation of a file.
type otherFile struct {
	id  content.NodeID
	gen uint64
}

func newOtherFiles() otherFiles {
	c, _ := lru.New[otherFile, struct{}](1 << 15) // it fails for none
	return otherFiles{c}
}

func (s otherFiles) has(o *operand) bool { return s.Contains(otherFile{o.n.ID(), o.gen}) }

func (s otherFiles) add(o *operand) { s.Add(otherFile{o.n.ID(), o.gen}, struct{}{}) }
