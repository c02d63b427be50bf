package place

import (
	"fmt"
	"os"
)

// Tensor reads FILE:TENSOR. Both may have colons in them: the file is the shortest part before one that there
// is, or else the shortest that is a folder. What is gone is named up to the first colon.
func Tensor(arg string) (file, tensor string, err error) {
	first, folder := 0, 0
	for i, c := range arg {
		if c != ':' || i == 0 || i+1 == len(arg) {
			continue
		}
		if first == 0 {
			first = i
		}
		st, err := os.Stat(arg[:i])
		if err == nil && !st.IsDir() {
			return arg[:i], arg[i+1:], nil
		}
		if err == nil && folder == 0 {
			folder = i
		}
	}
	if folder == 0 {
		folder = first
	}
	if folder == 0 {
		return "", "", fmt.Errorf("%s: after the file a colon and the name of a tensor are missing, as in %[1]s:layer.weight", arg)
	}
	return arg[:folder], arg[folder+1:], nil
}
