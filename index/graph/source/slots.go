package source

import (
	"strings"

	"ckptfs/index/graph"
)

// slots names the parameters of one vertex by their tensors: the names less the components that all begin
// with.
func slots(params []graph.Param) {
	if len(params) == 0 {
		return
	}
	prefix := module(params[0].Tensor)
	for _, p := range params[1:] {
		for !inModule(p.Tensor, prefix) {
			prefix = module(prefix)
		}
	}
	for i := range params {
		if p := &params[i]; prefix == "" {
			p.Slot = p.Tensor
		} else {
			p.Slot = p.Tensor[len(prefix)+1:]
		}
	}
}

// module is what stands before the last dot or slash of a tensor's name, "" without one.
func module(name string) string { return name[:max(strings.LastIndexAny(name, "./"), 0)] }

func inModule(name, prefix string) bool {
	return prefix == "" || len(name) > len(prefix) && name[:len(prefix)] == prefix &&
		(name[len(prefix)] == '.' || name[len(prefix)] == '/')
}
