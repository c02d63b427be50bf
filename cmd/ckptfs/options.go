package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// settable are the flags that -o may name, with '_' or '-' between words.
var settable = map[string]bool{
	"hot-size": true, "max-unpacked": true, "memory": true, "cache-size": true, "pack-cpus": true,
	"no-passthrough": true, "no-delta": true, "no-recipes": true, "no-ids": true, "no-views": true,
	"hide-torn":   true,
	"allow-other": true,
	"mkdir":       true, "non-empty": true, "read-only": true, "log-file": true, "log-format": true,
	"log-level": true, "metrics-listen": true, "foreign": true, "push": true, "push-rate": true,
	"remote-poll": true, "pull-rate": true, "runs": true, "keep-free": true, "remote": true,
	"endpoint": true, "region": true,
	"path-style": true, "profile": true, "insecure-http": true, "writer": true, "reader": true,
	"mirror": true, "remote-cache": true, "remote-timeout": true,
}

// spellings are other programs' words for flags of ours.
var spellings = map[string]string{"nonempty": "non-empty", "ro": "read-only"}

// kernelWords are the options that the kernel, or fusermount3, keeps for a mount. Later ones go before
// earlier ones.
var kernelWords = map[string]bool{
	"suid": true, "nosuid": true, "dev": true, "nodev": true, "exec": true, "noexec": true, "atime": true,
	"noatime":  true,
	"diratime": true, "nodiratime": true, "relatime": true, "norelatime": true, "strictatime": true,
	"nostrictatime": true,
	"sync":          true, "async": true, "dirsync": true,
}

// ignored are the words of an fstab line that are for mount(8) or systemd or mean nothing, and defaults that
// are so anyway.
var ignored = map[string]bool{
	"": true, "defaults": true, "rw": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true,
	"user": true, "nouser": true, "users": true, "owner": true, "group": true, "silent": true, "loud": true,
	"iversion": true, "noiversion": true, "mand": true, "nomand": true, "lazytime": true, "nolazytime": true,
	"default_permissions": true, "fsname": true, "subtype": true, "blkdev": true,
}

// isIgnored says whether an option is for others: x-… is user space's own, X-… is so and is not kept.
func isIgnored(name string) bool {
	return ignored[name] || strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "X-") ||
		name == "comment" ||
		name == "helper" || name == "uhelper"
}

// applyOptions sets the flags that -o names. A flag given by itself goes before.
func (c *mountConfig) applyOptions(flags *pflag.FlagSet) error {
	given := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for _, opt := range strings.Split(strings.Join(c.options, ","), ",") {
		name, value, hasValue := strings.Cut(opt, "=")
		flag := strings.ReplaceAll(name, "_", "-")
		if own, ok := spellings[name]; ok {
			flag = own
		}
		switch {
		case settable[flag]:
		case kernelWords[name] && !hasValue:
			c.kernel = append(c.kernel, name)
			continue
		case isIgnored(name):
			continue
		case name == "remount":
			return fmt.Errorf("-o remount: the options of a mount cannot be changed: unmount it and mount it again")
		case c.sloppy:
			continue
		default:
			return fmt.Errorf("-o %s: no such option; `ckptfs mount --help` lists them", opt)
		}
		if given[flag] {
			continue
		}
		if !hasValue {
			if flags.Lookup(flag).Value.Type() != "bool" {
				return fmt.Errorf("-o %s: it needs a value, %[1]s=…", opt)
			}
			value = "true"
		}
		if err := flags.Set(flag, value); err != nil {
			return fmt.Errorf("-o %s: %w", opt, err)
		}
	}
	return nil
}
