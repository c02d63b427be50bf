package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// settable are the flags that -o may name, with '_' or '-' between words.
var settable = map[string]bool{
	"hot-size": true, "cache-size": true, "pack-cpus": true, "no-passthrough": true, "no-views": true, "allow-other": true,
	"log-file": true, "log-format": true, "log-level": true,
}

// ignored are mount(8)'s own words in an fstab line, and defaults that are so anyway.
var ignored = map[string]bool{
	"": true, "defaults": true, "rw": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true, "user": true, "nouser": true,
	"users": true, "nodev": true, "nosuid": true, "dev": true, "suid": true, "exec": true, "noatime": true, "relatime": true,
	"default_permissions": true,
}

// applyOptions sets the flags that -o names. A flag given by itself goes before.
func (c *mountConfig) applyOptions(flags *pflag.FlagSet) error {
	given := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for _, opt := range strings.Split(strings.Join(c.options, ","), ",") {
		name, value, hasValue := strings.Cut(opt, "=")
		flag := strings.ReplaceAll(name, "_", "-")
		switch {
		case settable[flag]:
		case ignored[name], strings.HasPrefix(name, "x-"), strings.HasPrefix(name, "comment"):
			continue
		default:
			return fmt.Errorf("-o %s: no such option", opt)
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
