package metadata

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// maxSessionToken bounds a session token, in bytes; real ones have 56.
const maxSessionToken = 1024

// EC2 gets a path from an Amazon EC2 server, in version 2 of its protocol: it asks first for
// a session token, good for a minute, and with that for the answer. If the token has ended
// meanwhile, it takes another, once.
func (c *Client) EC2(ctx context.Context, path string, maxSize int) ([]byte, error) {
	for again := false; ; again = true {
		token, err := c.sessionToken(ctx)
		if err != nil {
			return nil, err
		}
		body, err := c.Do(ctx, Request{Path: path, MaxSize: maxSize, Header: map[string]string{"X-aws-ec2-metadata-token": token}, Wants: map[int]string{
			http.StatusUnauthorized: "an answer for the session token that this server gave",
			http.StatusForbidden:    ec2Enabled,
			http.StatusNotFound:     path + ", which Amazon EC2 has",
		}})
		if status, _ := StatusOf(err); status != http.StatusUnauthorized || again {
			return body, err
		}
	}
}

const ec2Enabled = "the metadata service: enable its endpoint in the instance's metadata options, and ask without a proxy"

// sessionToken asks for a session token. It refuses another server's page.
func (c *Client) sessionToken(ctx context.Context) (string, error) {
	token, err := c.Do(ctx, Request{Method: http.MethodPut, Path: "/latest/api/token", MaxSize: maxSessionToken, Secret: true,
		Header: map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "60"}, Wants: map[int]string{
			0: "one: enable the endpoint in the instance's metadata options and, for a program in a container, set their hop limit to 2 or more, " +
				"as the answer ends at the first hop otherwise",
			http.StatusForbidden:        ec2Enabled,
			http.StatusNotFound:         "version 2 of Amazon EC2's metadata service, which gives session tokens",
			http.StatusMethodNotAllowed: "version 2 of Amazon EC2's metadata service, which gives session tokens",
		}})
	if err == nil && (len(token) == 0 || strings.ContainsFunc(string(token), notInToken)) {
		got := strconv.Itoa(len(token)) + " bytes that are not a token" // or one, and a line end
		if strings.HasPrefix(string(token), "<") {
			got = "a web page"
		}
		err = fail(got, "a session token: another server answers in place of Amazon EC2's metadata server", nil)
	}
	return string(token), err
}

// notInToken reports a character that no token in a header has (RFC 6750, section 2.1).
func notInToken(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~+/=", r)
}
