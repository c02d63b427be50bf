package holder

import "strings"

// fdEnv tells a daemon which descriptor is its end of the link.
const fdEnv = "CKPTFS_HOLDER_FD"

// environ joins lists of environment entries. Of entries with the same name the last one counts.
func environ(lists ...[]string) []string {
	var out []string
	at := map[string]int{}
	for _, list := range lists {
		for _, entry := range list {
			name, _, _ := strings.Cut(entry, "=")
			if i, ok := at[name]; ok {
				out[i] = entry
				continue
			}
			at[name] = len(out)
			out = append(out, entry)
		}
	}
	return out
}
