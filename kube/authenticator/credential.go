package authenticator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/refusal"
)

// How long [Authenticator.Credential] may wait: every request of the kubelet waits with it.
const (
	// maxWait is the longest it waits when it has a certificate that works.
	maxWait = 8 * time.Second
	// maxWaitWithout is the longest it waits when it has none.
	maxWaitWithout = time.Minute

	waitMargin = 750 * time.Millisecond // for what comes before and after
)

const (
	// askAgain is how soon client-go comes back when another process is renewing.
	askAgain = 10 * time.Second
	// lookPause is how often a waiter checks whether another process has stored a certificate.
	lookPause = 100 * time.Millisecond
)

// Credential returns what an exec credential plugin prints: the stored certificate with its
// key and, as expirationTimestamp, when to ask again. That is the time of renewal, not the end
// of the certificate: past expirationTimestamp, client-go fails every request if the plugin
// fails, even though the certificate still works. So a certificate that works is always
// returned.
//
// Until the time of renewal, this takes one read of one file. From then on Credential renews
// the certificate itself, unless a daemon does ([Authenticator.Run]) or another process is
// already doing so. It waits for the renewal for at most 8 seconds, and returns the previous
// certificate if the renewal fails. If no stored certificate works, it waits for a new one for
// up to a minute, trying as often as the pauses between attempts allow; if it returns
// an error, that says how the last attempt ended.
//
// A kubelet that is configured to get certificates in a way that bypasses this one is refused,
// whatever is stored: the check is kubelet-configuration.
func (a *Authenticator) Credential(ctx context.Context) (*clientauthenticationv1.ExecCredential, error) {
	if !a.made() {
		return nil, errNotMade
	}
	began := time.Now()
	p, now := a.load(ClientFile), a.c.Now()
	if err := a.c.Kubelet.Check(); err != nil {
		if errors.Is(err, checkKubelet) || !p.Usable(now) {
			return nil, err
		}
		a.c.Log.Warn("the kubelet's configuration is not known", "why", err.Error())
	}
	switch {
	case p.Usable(now) && now.Before(p.Renew):
		return credential(p, p.Renew), nil
	case p.Usable(now):
		ctx, cancel := context.WithDeadline(ctx, began.Add(maxWait-waitMargin))
		defer cancel()
		return a.renewedCredential(ctx, p), nil
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(maxWaitWithout-waitMargin))
	defer cancel()
	p, err := a.firstPair(ctx)
	if err != nil {
		return nil, err
	}
	return credential(p, p.Renew), nil
}

// renewedCredential renews a certificate that still works, unless somebody else is doing so.
func (a *Authenticator) renewedCredential(ctx context.Context, p *certstore.Pair) *clientauthenticationv1.ExecCredential {
	old := func(again time.Time) *clientauthenticationv1.ExecCredential {
		soonest := a.c.Now().Add(time.Second) // client-go would run the plugin for every request
		if again.Before(soonest) {
			again = soonest
		}
		if again.After(p.Leaf.NotAfter) {
			again = p.Leaf.NotAfter
		}
		return credential(p, again)
	}
	if a.store.Held(daemonName) {
		return old(a.c.Now().Add(askAgain))
	}
	l, err := a.store.TryLock()
	if err != nil {
		if !errors.Is(err, certstore.ErrLocked) {
			a.c.Log.Error("no lock on the folder", "why", err.Error())
		}
		return old(a.c.Now().Add(askAgain))
	}
	if newer := a.load(ClientFile); newer.Usable(a.c.Now()) && a.c.Now().Before(newer.Renew) {
		_ = l.Unlock() // nothing was written
		return credential(newer, newer.Renew)
	}
	if next := a.readState()[ClientFile].Next; a.c.Now().Before(next) {
		_ = l.Unlock() // nothing was written
		return old(next)
	}
	newer, err := a.attempt(ctx, l, a.items[0])
	if newer != nil { // even one that could not be stored
		return credential(newer, newer.Renew)
	}
	a.c.Log.Warn("the certificate of before stays", "until", p.Leaf.NotAfter, "why", err.Error())
	return old(a.readState()[ClientFile].Next)
}

// firstPair waits for a certificate that works: its own or another process's.
func (a *Authenticator) firstPair(ctx context.Context) (*certstore.Pair, error) {
	var last error
	failed := func() error {
		if last == nil {
			if t := a.readState()[ClientFile]; t.Error != "" {
				last = errors.New(t.Error)
			} else {
				last = ctx.Err()
			}
		}
		return fmt.Errorf("authenticator: no certificate yet, and the next attempt is at %s: %w", a.readState()[ClientFile].Next.Format(time.RFC3339), last)
	}
	ticker := time.NewTicker(lookPause)
	defer ticker.Stop()
	for {
		if p := a.load(ClientFile); p.Usable(a.c.Now()) {
			return p, nil
		}
		if !a.c.Now().Before(a.readState()[ClientFile].Next) {
			switch l, err := a.store.TryLock(); {
			case err == nil:
				p, err := a.attemptFirst(ctx, l)
				if p != nil {
					return p, nil
				}
				if last == nil || ctx.Err() == nil { // an error that only says that time ran out says less
					last = err
				}
			case !errors.Is(err, certstore.ErrLocked):
				return nil, err
			}
		}
		select {
		case <-ctx.Done():
			return nil, failed()
		case <-ticker.C:
		}
	}
}

// attemptFirst makes an attempt under a lock that was acquired a moment after the last look.
func (a *Authenticator) attemptFirst(ctx context.Context, l *certstore.Lock) (*certstore.Pair, error) {
	if p := a.load(ClientFile); p.Usable(a.c.Now()) {
		return p, l.Unlock()
	}
	return a.attempt(ctx, l, a.items[0])
}

func credential(p *certstore.Pair, again time.Time) *clientauthenticationv1.ExecCredential {
	expiration := metav1.NewTime(again.UTC())
	return &clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &clientauthenticationv1.ExecCredentialStatus{
			ExpirationTimestamp: &expiration, ClientCertificateData: string(p.Chain), ClientKeyData: string(p.Key),
		},
	}
}

// checkExecInfo is the check that fails if the environment variable KUBERNETES_EXEC_INFO asks
// a plugin for a version of the answer other than client.authentication.k8s.io/v1.
const checkExecInfo refusal.Check = "exec-info"

// maxExecInfo bounds it, in bytes: the kernel allows a process less.
const maxExecInfo = 1 << 20

// CheckExecInfoVariable checks the value of KUBERNETES_EXEC_INFO against what
// [Authenticator.Credential] returns. The value "" means that this is not being run as a
// plugin, and passes. The check of the error is exec-info.
func CheckExecInfoVariable(value string) error {
	if value == "" {
		return nil
	}
	want := clientauthenticationv1.SchemeGroupVersion.String()
	if len(value) > maxExecInfo {
		return &refusal.Error{Check: checkExecInfo, Got: "a longer KUBERNETES_EXEC_INFO", Want: "at most 1 MiB"}
	}
	var info metav1.TypeMeta
	if err := json.Unmarshal([]byte(value), &info); err != nil {
		return &refusal.Error{Check: checkExecInfo, Got: "a KUBERNETES_EXEC_INFO that is no JSON", Want: "an ExecCredential of " + want, Err: err}
	}
	if info.APIVersion != want || info.Kind != "ExecCredential" {
		return &refusal.Error{Check: checkExecInfo, Got: "KUBERNETES_EXEC_INFO of " + refusal.Quote(info.Kind+" "+info.APIVersion), Want: "ExecCredential " + want + ", the apiVersion of exec in the kubeconfig"}
	}
	return nil
}
