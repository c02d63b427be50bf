package s3

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"ckptfs/cas/remote/transport"
)

// load reads environment and files, and finds out who has credentials.
func load(ctx context.Context, c Config) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{config.WithSharedConfigProfile(c.Profile),
		config.WithLogger(logging.Nop{})} // else it writes to standard error; errors say what is wrong
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	return config.LoadDefaultConfig(ctx, options...)
}

// retrieve gives the credentials that sign a request. Who had them may have none any more, and another may.
func (b *Bucket) retrieve(ctx context.Context) (aws.Credentials, error) {
	used := b.credentials.Load()
	c, err := (*used).Retrieve(ctx)
	if err != nil && b.renew(ctx, used) {
		return (*b.credentials.Load()).Retrieve(ctx)
	}
	return c, err
}

// request is one that is watched, and who gave its credentials.
type request struct {
	*transport.Watch
	b           *Bucket
	ctx         context.Context
	credentials *aws.CredentialsProvider
}

func (b *Bucket) begin(ctx context.Context, op, key string) (context.Context, *request) {
	ctx, w := transport.Begin(ctx, op, key)
	return ctx, &request{w, b, ctx, b.credentials.Load()}
}

// expired reports whether an engine refuses credentials that were right once.
func expired(code string) bool {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken",
		"InvalidAccessKeyId":
		return true
	}
	return false
}

// renew looks for credentials again, unless that was done since those that were used were found, and reports
// whether there are others.
func (b *Bucket) renew(ctx context.Context, used *aws.CredentialsProvider) bool {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	if b.credentials.Load() != used {
		return true
	}
	loaded, err := load(ctx, b.c)
	if err != nil {
		return false
	}
	found, err := loaded.Credentials.Retrieve(ctx)
	if err != nil {
		return false
	}
	old, err := (*used).Retrieve(ctx)
	if err == nil && found.AccessKeyID == old.AccessKeyID && found.SecretAccessKey == old.SecretAccessKey &&
		found.SessionToken == old.SessionToken {
		return false
	}
	b.credentials.Store(&loaded.Credentials)
	return true
}
