// Verify-token says whose service-account token it reads from standard input. It represents
// a service that knows the issuer and its own name, and has no access to the cluster: the
// keys are those in the issuer's discovery document.
//
//	kubectl create token cart --audience https://shop.example |
//		go run ./examples/verify-token https://oidc.example/cluster-1 https://shop.example
//
// A token is good until it ends, after at most two hours, whatever has become of its pod. If
// only the cluster serves its keys, the http.Client needs the cluster's CA and a token: see
// the example of jws.RemoteConfig.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
)

func main() {
	if err := run(context.Background(), http.DefaultClient, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "verify-token:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, client *http.Client, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: verify-token issuer audience < token")
	}
	keys, err := jws.NewRemoteKeySet(jws.RemoteConfig{Issuer: args[0], Client: client})
	if err != nil {
		return err
	}
	validator, err := claims.NewValidator(claims.ValidatorConfig{
		Issuer: args[0], Keys: keys, Audiences: args[1:], MaxLifetime: 2 * time.Hour, // the kubelet asks for 3607 s
		InsecureSkipObjects: true, InsecureAllowReplay: true,
	})
	if err != nil {
		return err
	}
	token, err := io.ReadAll(io.LimitReader(in, jws.MaxTokenSize+1))
	if err != nil {
		return err
	}
	result, err := validator.Validate(ctx, strings.TrimSpace(string(token)))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, result.Username())
	return err
}
