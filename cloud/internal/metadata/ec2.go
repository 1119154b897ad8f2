package metadata

import "context"

// EC2URL is the address of the metadata server of Amazon EC2 (Amazon EC2 User Guide,
// "Access instance metadata for an EC2 instance").
const EC2URL = "http://169.254.169.254"

// maxSessionToken bounds a session token, in bytes; real ones have 56.
const maxSessionToken = 1024

// EC2 asks an Amazon EC2 server for what is at a path, in version 2 of its protocol: first for
// a session token, good for a minute, and with that for the answer.
func (c *Client) EC2(ctx context.Context, path string, maxSize int) ([]byte, error) {
	token, err := c.Do(ctx, Request{Method: "PUT", Path: "/latest/api/token", MaxSize: maxSessionToken,
		Header: map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "60"}})
	if err != nil {
		return nil, err
	}
	return c.Do(ctx, Request{Path: path, MaxSize: maxSize, Header: map[string]string{"X-aws-ec2-metadata-token": string(token)}})
}
