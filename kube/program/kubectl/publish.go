package kubectl

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/internal/clusterinfo"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

// readerRole names the Role and the RoleBinding by which anonymous clients read the document.
const readerRole = "cluster-info-reader"

// maxCAFile is the size of a file of CAs; [bootstraptoken.ParseCAs] takes less.
const maxCAFile = 1 << 20

// writeTries is how often a document is written that other programs, such as the signer, also write.
const writeTries = 5

// publishClusterInfo makes the discovery document, and has anonymous clients read it.
func (p *plugin) publishClusterInfo(ctx context.Context, _ string) error {
	cas, err := readCAs(p.ca)
	if err != nil {
		return fmt.Errorf("--ca: %w", err)
	}
	info := &bootstraptoken.ClusterInfo{Server: p.publishServer, CAs: cas}
	for _, server := range p.alsoServers {
		if _, err := (&bootstraptoken.ClusterInfo{Server: server, CAs: cas}).Marshal(); err != nil {
			return fmt.Errorf("--also-server: %w", err)
		}
	}
	changed, err := p.writeDocument(ctx, info)
	switch {
	case errors.Is(err, refusal.ErrRetry):
		report(p.err, err)
		return statusNotDecided
	case errors.Is(err, clusterinfo.ErrForeign):
		return fmt.Errorf("%w; see kubectl nodeattest cluster-info show, and --replace", err)
	case err != nil:
		return err
	}
	say := func(kind, name string, changed bool) {
		how := "unchanged"
		if changed {
			how = "written"
		}
		fmt.Fprintf(p.out, "%s kube-public/%s: %s\n", kind, name, how)
	}
	say("ConfigMap", bootstraptoken.ClusterInfoName, changed)
	for _, o := range readers() {
		changed, err := p.writeReader(ctx, o)
		if err != nil {
			return err
		}
		say(o.kind, readerRole, changed)
	}
	if changed {
		fmt.Fprintln(p.err, "each token's signature is made by kube-controller-manager (bootstrapsigner) or by bootstrap-controller, not by this command: "+
			"nodes that discover by a token wait for it; see kubectl nodeattest cluster-info show")
	}
	return nil
}

// writeDocument writes the document, over other programs' changes of the ConfigMap.
func (p *plugin) writeDocument(ctx context.Context, info *bootstraptoken.ClusterInfo) (changed bool, err error) {
	for range writeTries {
		changed, err = clusterinfo.Write(ctx, p.client, info, clusterinfo.Options{Replace: p.replace, Servers: p.alsoServers, Now: p.now})
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return changed, err
}

// readCAs reads a file of CAs. The error about a file with a private key names it as such.
func readCAs(path string) ([]*x509.Certificate, error) {
	text, err := files.Read(path, maxCAFile)
	switch {
	case err != nil:
		return nil, err
	case bytes.Contains(text, []byte("PRIVATE KEY-----")):
		return nil, fmt.Errorf("%s has a private key, and is to have certificates only", refusal.Text(path))
	}
	return bootstraptoken.ParseCAs(text)
}

// A reader is a Role or a RoleBinding by which anonymous clients read the document.
type reader struct {
	kind string
	client.Object
}

// readers are the Role and the RoleBinding, for the document and no other.
func readers() []reader {
	meta := metav1.ObjectMeta{Namespace: bootstraptoken.ClusterInfoNamespace, Name: readerRole}
	return []reader{
		{"Role", &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{corev1.GroupName}, Resources: []string{"configmaps"}, ResourceNames: []string{bootstraptoken.ClusterInfoName}, Verbs: []string{"get"}}}}},
		{"RoleBinding", &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: readerRole},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}}}},
	}
}

// writeReader creates a Role or RoleBinding. One that is there has to be the same: it may be another
// program's, or wider than it should be.
func (p *plugin) writeReader(ctx context.Context, want reader) (changed bool, err error) {
	got := want.DeepCopyObject().(client.Object)
	err = p.client.Get(ctx, client.ObjectKeyFromObject(want), got)
	switch {
	case apierrors.IsNotFound(err):
		err = p.client.Create(ctx, want.Object)
		return err == nil, err
	case err != nil:
		return false, err
	case !sameRights(got, want.Object):
		return false, fmt.Errorf("%s kube-public/%s grants something else than to read cluster-info: delete it, and run the command again", want.kind, readerRole)
	}
	return false, nil
}

// sameRights compares what two Roles or RoleBindings grant.
func sameRights(got, want client.Object) bool {
	switch got := got.(type) {
	case *rbacv1.Role:
		return reflect.DeepEqual(got.Rules, want.(*rbacv1.Role).Rules)
	case *rbacv1.RoleBinding:
		w := want.(*rbacv1.RoleBinding)
		return got.RoleRef == w.RoleRef && reflect.DeepEqual(got.Subjects, w.Subjects)
	}
	return false
}
