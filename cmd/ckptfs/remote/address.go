package remote

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ckptfs/cas/remote"
	"ckptfs/cmd/ckptfs/text"
)

// addressFlags are the flags that say the rest of where a remote is, beside its URL.
type addressFlags struct {
	endpoint, region, profile string
	pathStyle, insecure       bool
}

func (a *addressFlags) add(f *pflag.FlagSet) {
	f.StringVar(&a.endpoint, "endpoint", "", "the engine's URL, such as https://s3.example.org; Amazon's if not given")
	f.StringVar(&a.region, "region", "", "the bucket's region")
	f.BoolVar(&a.pathStyle, "path-style", false, "the bucket's name goes into the path, not in front of the host")
	f.StringVar(&a.profile, "profile", "", "the profile of ~/.aws to take")
	f.BoolVar(&a.insecure, "insecure-http", false, "allow a remote without TLS on another machine")
}

// of is the address of a URL and the flags.
func (a *addressFlags) of(url string) (remote.Address, error) {
	at, err := remote.ParseURL(url)
	if err == nil {
		at.Endpoint, at.Region = strings.TrimSuffix(a.endpoint, "/"), a.region
		at.PathStyle, at.Profile = a.pathStyle, a.profile
		err = at.Check(a.insecure)
	}
	return at, err
}

// address is that of a URL on the line of a command that needs more than a mirror.
func (c *commands) address(cmd *cobra.Command, url string) (remote.Address, error) {
	at, err := c.at.of(url)
	if err == nil {
		err = writable(at)
	}
	if err != nil {
		err = c.Usage(cmd, err.Error())
	}
	return at, err
}

// flags are those that say the same as an address but for its URL.
func flags(a remote.Address) (all []string) {
	for _, f := range [][2]string{
		{"--endpoint", a.Endpoint}, {"--region", a.Region}, {"--profile", a.Profile},
	} {
		if f[1] != "" {
			all = append(all, f[0], text.Printable(f[1]))
		}
	}
	if a.PathStyle {
		all = append(all, "--path-style")
	}
	return all
}

// writable returns an error if nothing can be published to what is at an address.
func writable(a remote.Address) error {
	if a.ReadOnly() {
		return fmt.Errorf("%s: over plain HTTP a remote can only be read: `ckptfs clone` makes a store for that",
			a.URL())
	}
	return nil
}
