// Package clusterinfo writes the discovery document of a cluster, the kubeconfig in ConfigMap
// cluster-info, for the programs that publish it. It never locks clients out: see [Write].
package clusterinfo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/refusal"
)

// Annotation marks a ConfigMap that [Write] wrote. Its value is the SHA-256 digest of the kubeconfig in
// hexadecimal digits: a program that writes another kubeconfig does not keep it true.
const Annotation = "nodeattest.github.io/published-sha256"

// ErrForeign says that another program wrote the document in the ConfigMap, which is left alone.
var ErrForeign = errors.New("ConfigMap kube-public/cluster-info has a kubeconfig that another program wrote or changed, and is left alone")

// Options are the options of [Write]. The zero Options are ready to use.
type Options struct {
	// Replace replaces the document of another program.
	Replace bool
	// Servers are the URLs of other API servers, such as each one behind a load balancer: no CA is
	// dropped under which one of them still serves, nor while one of them cannot be reached.
	Servers []string
	// Dial opens TCP connections to servers, by IP address and port; nil means a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the clock by which certificates are judged; nil means [time.Now].
	Now func() time.Time
}

// Key is the name of the ConfigMap.
func Key() client.ObjectKey {
	return client.ObjectKey{Namespace: bootstraptoken.ClusterInfoNamespace, Name: bootstraptoken.ClusterInfoName}
}

// Write makes info the document of the cluster, and reports whether it wrote: an equal document stays as
// it is. It writes the key kubeconfig and the annotation, and keeps everything else, signatures included,
// which the signer then replaces. It makes one attempt: after a conflict, call it again.
//
// Before it writes, it connects to the server of info, and to the previous document's if that has a CA
// that info has not. The server of info must verify by the CAs of info; and no CA is dropped
// under which the previous document's server still serves. Of a name it tries every address. Behind a
// load balancer it sees the servers that the balancer chooses for three connections.
//
// The error matches [refusal.ErrRetry] if a server could not be reached, so that nothing is decided, and
// [ErrForeign] for another program's document without Replace. A document that
// [bootstraptoken.ParseKubeconfig] refuses is never replaced: its CAs and servers are not known.
func Write(ctx context.Context, c client.Client, info *bootstraptoken.ClusterInfo, opts Options) (changed bool, err error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	kubeconfig, err := info.Marshal()
	if err != nil {
		return false, err
	}
	object := new(corev1.ConfigMap)
	err = c.Get(ctx, Key(), object)
	exists := err == nil
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return false, err
	case exists && object.Data[bootstraptoken.KubeconfigKey] == string(kubeconfig) && (Published(object) || !opts.Replace):
		return false, nil
	}
	previous, err := replaceable(object, opts.Replace)
	if err != nil {
		return false, err
	}
	if err := checkValid(info, opts.Now()); err != nil {
		return false, err
	}
	if err := checkServers(ctx, previous, info, opts); err != nil {
		return false, err
	}
	set(&object.Data, bootstraptoken.KubeconfigKey, string(kubeconfig))
	set(&object.Annotations, Annotation, digest(string(kubeconfig)))
	if exists {
		err = c.Update(ctx, object)
	} else {
		object.ObjectMeta = metav1.ObjectMeta{Namespace: Key().Namespace, Name: Key().Name, Annotations: object.Annotations}
		err = c.Create(ctx, object)
	}
	return err == nil, err
}

// Published reports whether [Write] wrote the document in the ConfigMap.
func Published(object *corev1.ConfigMap) bool {
	return object.Annotations[Annotation] == digest(object.Data[bootstraptoken.KubeconfigKey])
}

func digest(kubeconfig string) string {
	sum := sha256.Sum256([]byte(kubeconfig))
	return hex.EncodeToString(sum[:])
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

// replaceable returns the document in a ConfigMap, nil without one, if it may be replaced.
func replaceable(object *corev1.ConfigMap, replace bool) (*bootstraptoken.ClusterInfo, error) {
	kubeconfig := object.Data[bootstraptoken.KubeconfigKey]
	switch {
	case kubeconfig == "":
		return nil, nil
	case !replace && !Published(object):
		return nil, ErrForeign
	}
	info, err := bootstraptoken.ParseKubeconfig([]byte(kubeconfig))
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig in ConfigMap kube-public/cluster-info is refused, so its server and CAs are not known, and it is left alone: %w; "+
			"everyone can read it: revoke a credential that it holds, and delete the ConfigMap", err)
	}
	return info, nil
}

// checkValid refuses CAs that are not valid now.
func checkValid(info *bootstraptoken.ClusterInfo, now time.Time) error {
	for _, ca := range info.CAs {
		if now.Before(ca.NotBefore) || now.After(ca.NotAfter) {
			return fmt.Errorf("the CA %s is valid from %s to %s only: take it out of the bundle",
				refusal.Text(ca.Subject.String()), ca.NotBefore.Format(time.RFC3339), ca.NotAfter.Format(time.RFC3339))
		}
	}
	return nil
}
