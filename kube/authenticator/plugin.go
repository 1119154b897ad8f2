package authenticator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/nodeattest/nodeattest/kube/authenticator/certstore"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/kubelet"
	"github.com/nodeattest/nodeattest/refusal"
)

// How long [Authenticator.Credential] may wait: every request of the kubelet waits with it.
const (
	// maxWait is the longest wait with a usable certificate.
	maxWait = 8 * time.Second
	// maxWaitWithout is the longest wait without one.
	maxWaitWithout = time.Minute
	// maxPause is the longest pause between two attempts that is waited for without a certificate.
	maxPause = 2 * time.Second

	waitMargin = 750 * time.Millisecond // for reading files before and after the wait

	// askAgain is when client-go runs the plugin again while another process is renewing.
	askAgain = 10 * time.Second
)

// Credential returns the output of an exec credential plugin: the stored certificate with its key
// and, as expirationTimestamp, the time of renewal. That is not the certificate's notAfter: past
// expirationTimestamp, client-go fails every request if the plugin fails, even though the certificate
// is still valid. So a usable certificate is always returned.
//
// If the certificate is older than five minutes, Credential checks that the API server accepts it:
// client-go runs the plugin before expirationTimestamp if the API server returned 401. From the time of
// renewal on, and after a 401, Credential renews the certificate itself, unless a daemon does
// ([Authenticator.Run]) or another process is already doing so. It waits for the renewal for at most 8
// seconds, and returns the previous certificate if the renewal fails. If no stored certificate is
// usable, it waits for a new one for up to a minute, trying as often as the pauses between attempts
// allow; an error is that of the last attempt. After some failures the pauses are longer than two seconds,
// and Credential fails at once: client-go calls one plugin at a time, and a kubelet that starts again
// mounts no volume of a static pod, such as the API server's, before a request has ended.
//
// A kubelet that is configured to get certificates without the plugin is refused: the check is
// kubelet-configuration.
func (a *Authenticator) Credential(ctx context.Context) (*clientauthenticationv1.ExecCredential, error) {
	if !a.made() {
		return nil, errNotMade
	}
	began, limit := time.Now(), maxWaitWithout
	v := a.snapshot(caller{plugin: true})
	client := v.next(a.slots[0])
	if client.use != nil {
		limit = maxWait
	}
	if err := a.kubelet.Check(); err != nil {
		if errors.Is(err, kubelet.CheckConfiguration) || client.use == nil {
			return nil, err
		}
		a.config.Log.Warn("cannot check the kubelet's configuration; the stored certificate is used", "why", err.Error())
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(limit-waitMargin))
	defer cancel()
	var last error
	err := v.loop(ctx, func(s step, failed error) bool {
		if client = s; failed != nil && (last == nil || ctx.Err() == nil) { // the end of ctx does not replace the error of an attempt
			last = failed
		}
		return s.use != nil || a.pauses(s)
	})
	if client.use != nil {
		return execCredential(client.use, a.refreshTime(client)), nil
	}
	t := a.readState()[ClientFile]
	if last == nil && t.Error != "" {
		last = errors.New(t.Error)
	}
	return nil, fmt.Errorf("authenticator: no certificate yet, and the next attempt is at %s: %w", t.Next.Format(time.RFC3339), cmp.Or(last, err))
}

// pauses reports whether an attempt has failed, and the next one is later than the plugin waits for. An attempt
// of another process, which has not ended, is waited for.
func (a *Authenticator) pauses(s step) bool {
	return s.do == wait && s.at.Sub(a.config.Now()) > maxPause && a.readState()[ClientFile].failed()
}

// refreshTime returns when client-go runs the plugin again: not at once, as it would do so for every
// request, and not after the certificate has expired.
func (a *Authenticator) refreshTime(s step) time.Time {
	now, at := a.config.Now(), s.at
	if s.do == renew { // another process does so
		at = now.Add(askAgain)
	}
	at = slices.MaxFunc([]time.Time{at, now.Add(time.Second)}, time.Time.Compare)
	return slices.MinFunc([]time.Time{at, s.use.Leaf.NotAfter}, time.Time.Compare)
}

func execCredential(p *certstore.Pair, again time.Time) *clientauthenticationv1.ExecCredential {
	expiration := metav1.NewTime(again.UTC())
	return &clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &clientauthenticationv1.ExecCredentialStatus{
			ExpirationTimestamp: &expiration, ClientCertificateData: string(p.Chain), ClientKeyData: string(p.Key),
		},
	}
}

// checkExecInfo is the check that fails if the environment variable KUBERNETES_EXEC_INFO requests a
// version of the output other than client.authentication.k8s.io/v1.
const checkExecInfo refusal.Check = "exec-info"

// CheckExecInfoVariable checks that the value of KUBERNETES_EXEC_INFO requests the version that
// [Authenticator.Credential] returns. The value "" means that this is not being run as a plugin, and
// passes. The check of the error is exec-info.
func CheckExecInfoVariable(value string) error {
	if value == "" {
		return nil
	}
	want := clientauthenticationv1.SchemeGroupVersion.String()
	var info metav1.TypeMeta
	if err := json.Unmarshal([]byte(value), &info); err != nil {
		return &refusal.Error{Check: checkExecInfo, Got: "a KUBERNETES_EXEC_INFO that is not JSON", Want: "an ExecCredential of " + want, Err: err}
	}
	if info.APIVersion != want || info.Kind != "ExecCredential" {
		return &refusal.Error{Check: checkExecInfo, Got: "KUBERNETES_EXEC_INFO of " + refusal.Quote(info.Kind+" "+info.APIVersion), Want: "ExecCredential " + want + ", the apiVersion of exec in the kubeconfig"}
	}
	return nil
}
