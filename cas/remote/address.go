package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/s3"
	"ckptfs/cas/remote/web"
)

// Address says where a remote is and how its engine is spoken to.
type Address struct {
	Bucket, Prefix string // the prefix is "" or has a slash at its end, and none at its begin
	Endpoint       string // URL; "": Amazon's
	Region         string
	PathStyle      bool
	Profile        string
	// Web is the URL of a remote that is read over plain HTTP, and all that its address says.
	Web string
}

// ReadOnly reports whether nothing can be published to what is there, by anybody.
func (a Address) ReadOnly() bool { return a.Web != "" }

// Names of buckets are those of S3. Prefixes keep to what no engine escapes or forbids.
var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixName = regexp.MustCompile(`^[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*$`)
)

// maxPrefix leaves room for the remote's own keys.
const maxPrefix = bucket.MaxKey - 256

// ParseURL reads s3://BUCKET/PREFIX, or the URL of a mirror (package web).
func ParseURL(s string) (a Address, err error) {
	u, err := url.Parse(s)
	switch {
	case err == nil && (u.Scheme == "https" || u.Scheme == "http"):
		b, err := web.Open(s, nil)
		if err == nil {
			a.Web = b.URL()
		}
		return a, err
	case err != nil:
		return a, errors.New("the remote is no URL: write s3://BUCKET/PREFIX") // the error may hold a password
	case u.User != nil:
		return a, errors.New("a remote's URL holds no user and no password: credentials are looked for where " +
			"Amazon's tools look (AWS_ACCESS_KEY_ID, ~/.aws/credentials, …)")
	case u.Scheme != "s3" || u.Opaque != "" || u.RawQuery != "" || u.Fragment != "":
		return a, fmt.Errorf("remote %q: write s3://BUCKET/PREFIX", s)
	case !bucketName.MatchString(u.Host):
		return a, fmt.Errorf("remote %q: write s3://BUCKET/PREFIX: %q is no bucket's name", s, u.Host)
	}
	prefix := strings.Trim(u.Path, "/")
	switch {
	case prefix == "":
		return Address{Bucket: u.Host}, nil
	case len(prefix) > maxPrefix, !prefixName.MatchString(prefix), strings.Contains("/"+prefix+"/", "/./"),
		strings.Contains("/"+prefix+"/", "/../"):
		return a, fmt.Errorf("remote %q: a prefix has letters, digits, and _ . = - between its slashes, and "+
			"at most %d bytes", s, maxPrefix)
	}
	return Address{Bucket: u.Host, Prefix: prefix + "/"}, nil
}

// URL is what ParseURL reads.
func (a Address) URL() string {
	if a.ReadOnly() {
		return a.Web
	}
	return "s3://" + a.Bucket + "/" + strings.TrimSuffix(a.Prefix, "/")
}

// Check returns an error unless the endpoint is one. Without TLS anybody on the way reads and changes what is
// sent: insecure allows it beyond this machine.
func (a Address) Check(insecure bool) error {
	if a.ReadOnly() {
		return a.checkWeb(insecure)
	}
	if a.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(a.Endpoint)
	switch {
	case err != nil, u.Host == "", u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
		return errors.New("the endpoint is to be https://HOST or https://HOST:PORT")
	case u.User != nil:
		return errors.New("an endpoint holds no user and no password")
	case u.Scheme == "https", u.Scheme == "http" && (insecure || loopback(u.Hostname())):
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("endpoint %s has no TLS: whoever is on the way reads and changes what is sent; "+
			"--insecure-http allows it", a.Endpoint)
	}
	return fmt.Errorf("endpoint %s: neither https nor http", a.Endpoint)
}

// checkWeb is Check of a mirror. What heads say of names is compared with no hash.
func (a Address) checkWeb(insecure bool) error {
	if a != (Address{Web: a.Web}) {
		return errors.New("a mirror over plain HTTP takes no endpoint, region, profile and path style: its URL is all")
	}
	u, err := url.Parse(a.Web)
	if err == nil && u.Scheme == "http" && !insecure && !loopback(u.Hostname()) {
		err = fmt.Errorf("mirror %s has no TLS: others on the way may show other checkpoints by these names; "+
			"--insecure-http allows it", a.Web)
	}
	return err
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Open opens the bucket. The engine is not asked anything.
func (a Address) Open(ctx context.Context) (bucket.Bucket, error) {
	if a.ReadOnly() {
		return web.Open(a.Web, nil)
	}
	return s3.Open(ctx, s3.Config{Bucket: a.Bucket, Prefix: a.Prefix, Endpoint: a.Endpoint, Region: a.Region,
		PathStyle: a.PathStyle || byAddress(a.Endpoint), Profile: a.Profile})
}

// byAddress: the endpoint has no name that a bucket's could be put in front of.
func byAddress(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && (net.ParseIP(u.Hostname()) != nil || u.Hostname() == "localhost")
}
