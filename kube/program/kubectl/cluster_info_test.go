package kubectl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/bootstraptoken/bootstraptokentest"
	"github.com/nodeattest/nodeattest/kube/internal/clusterinfo"
)

// publishes is an operator's plugin that is given a cluster's server and CAs to publish.
func publishes(t *testing.T, cluster *bootstraptokentest.Cluster, objects ...client.Object) *operated {
	t.Helper()
	o := operates(t, "", objects...)
	o.now = time.Now
	o.publishServer, o.ca = cluster.URL(), bundle(t, cluster.Info().CAs...)
	return o
}

// bundle writes a file of certificates.
func bundle(t *testing.T, certs ...*x509.Certificate) string {
	t.Helper()
	var text []byte
	for _, cert := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return written(t, string(text))
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// publishedBy is a ConfigMap with a cluster's document, as another program wrote it.
func publishedBy(cluster *bootstraptokentest.Cluster) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.ClusterInfoNamespace, Name: bootstraptoken.ClusterInfoName}, Data: cluster.Data()}
}

// printed compares the output, and empties it.
func (o *operated) printed(t *testing.T, want string) {
	t.Helper()
	if got := o.out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	o.out.Reset()
}

// TestClusterInfoPublish: the document, a Role and a RoleBinding are written once. The signer's keys stay.
func TestClusterInfoPublish(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	o := publishes(t, cluster)
	publish := func(words ...string) {
		t.Helper()
		if err := o.publishClusterInfo(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		o.printed(t, strings.NewReplacer("1", words[0], "2", words[1]).Replace("ConfigMap kube-public/cluster-info: 1\nRole kube-public/cluster-info-reader: 2\nRoleBinding kube-public/cluster-info-reader: 2\n"))
	}
	publish("written", "written")
	publish("unchanged", "unchanged")
	if err := cluster.AddCA(); err != nil {
		t.Fatal(err)
	}
	o.ca = bundle(t, cluster.Info().CAs...)
	publish("written", "unchanged")

	var object corev1.ConfigMap
	if err := o.client.Get(t.Context(), clusterinfo.Key(), &object); err != nil || object.Data[bootstraptoken.KubeconfigKey] != cluster.Data()[bootstraptoken.KubeconfigKey] {
		t.Fatalf("%v, %q", err, object.Data)
	}
	at := client.ObjectKey{Namespace: "kube-public", Name: readerRole}
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	for _, into := range []client.Object{&role, &binding} {
		if err := o.client.Get(t.Context(), at, into); err != nil {
			t.Fatal(err)
		}
	}
	if len(role.Rules) != 1 || role.Rules[0].String() != (&rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"cluster-info"}}).String() {
		t.Errorf("the role is %+v", role.Rules)
	}
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "system:anonymous" || binding.RoleRef.Name != readerRole {
		t.Errorf("the binding is %+v of %+v", binding.Subjects, binding.RoleRef)
	}
	role.Rules[0].ResourceNames = nil
	if err := o.client.Update(t.Context(), &role); err != nil {
		t.Fatal(err)
	}
	if err := o.publishClusterInfo(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "Role kube-public/cluster-info-reader grants something else") {
		t.Errorf("a wider role: got %v", err)
	}
}

// TestClusterInfoPublishMeanwhile: a signature that is written between reading and writing stays, and the
// document is written over it.
func TestClusterInfoPublishMeanwhile(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	o := publishes(t, cluster, publishedBy(cluster))
	o.replace = true
	store, conflicts := o.client.(client.WithWatch), 0
	o.client = interceptor.NewClient(store, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.UpdateOption) error {
		if conflicts++; conflicts < writeTries {
			signed := new(corev1.ConfigMap)
			if err := store.Get(ctx, clusterinfo.Key(), signed); err != nil {
				return err
			}
			signed.Data[bootstraptoken.SignatureKeyPrefix+strconv.Itoa(100000+conflicts)] = "a signature"
			if err := store.Update(ctx, signed); err != nil {
				return err
			}
		}
		return c.Update(ctx, object, opts...)
	}})
	if err := o.publishClusterInfo(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var object corev1.ConfigMap
	if err := store.Get(t.Context(), clusterinfo.Key(), &object); err != nil || !clusterinfo.Published(&object) || object.Data[bootstraptoken.SignatureKeyPrefix+"100004"] == "" {
		t.Errorf("%v, %q after %d attempts", err, object.Data, conflicts)
	}
	conflicts = -writeTries // more than it tries
	object.Data[bootstraptoken.KubeconfigKey] = strings.Replace(object.Data[bootstraptoken.KubeconfigKey], "127.0.0.1", "localhost", 1)
	if err := store.Update(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
	if err := o.publishClusterInfo(t.Context(), ""); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
}

// TestClusterInfoPublishRefuses: bad input, another program's document, and a server that is away.
func TestClusterInfoPublishRefuses(t *testing.T) {
	cluster, other := bootstraptokentest.New(t, bootstraptokentest.Options{}), bootstraptokentest.New(t, bootstraptokentest.Options{})
	ca := cluster.Info().CAs[0]
	key := "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
	for name, row := range map[string]struct {
		set  func(o *operated)
		want string // in the error
	}{
		"http":          {func(o *operated) { o.publishServer = strings.Replace(o.publishServer, "https", "http", 1) }, "server-url-scheme"},
		"a user":        {func(o *operated) { o.publishServer = "https://a:sesame@127.0.0.1" }, "a URL with a user"},
		"a query":       {func(o *operated) { o.publishServer += "/?a" }, "server-url"},
		"no file":       {func(o *operated) { o.ca += ".none" }, "no such file"},
		"an empty file": {func(o *operated) { o.ca = written(t, "") }, "no certificate"},
		"a large file":  {func(o *operated) { o.ca = written(t, strings.Repeat("a", maxCAFile+1)) }, "more than"},
		"a private key": {func(o *operated) { o.ca = written(t, string(must(os.ReadFile(o.ca)))+key) }, "has a private key"},
		"another CA":    {func(o *operated) { o.ca = bundle(t, other.Info().CAs...) }, "server-certificate"},
		"expired":       {func(o *operated) { o.now = func() time.Time { return ca.NotAfter.Add(time.Hour) } }, "take it out of the bundle"},
		"not a CA":      {func(o *operated) { o.ca = bundle(t, leafOf(t, cluster)) }, "which is no CA"},
		"kubeadm's document": {func(o *operated) {
			object := publishedBy(other)
			if err := o.client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}, "another program wrote or changed, and is left alone; see kubectl nodeattest cluster-info show, and --replace"},
		"a CA that is served": {func(o *operated) {
			o.replace = true
			if err := o.client.Create(t.Context(), publishedBy(other)); err != nil {
				t.Fatal(err)
			}
		}, "server " + other.URL() + " still serves under the CA"},
		"no URL": {func(o *operated) { o.alsoServers = []string{"10.0.0.1:6443"} }, "--also-server: server-url"},
		"a CA that another server serves": {func(o *operated) {
			o.publishServer, o.ca, o.alsoServers = other.URL(), bundle(t, other.Info().CAs...), []string{cluster.URL()}
			o.replace = true
			both := publishedBy(other)
			both.Data = must((&bootstraptoken.ClusterInfo{Server: other.URL(), CAs: append(other.Info().CAs, ca)}).Data())
			if err := o.client.Create(t.Context(), both); err != nil {
				t.Fatal(err)
			}
		}, "server " + cluster.URL() + " still serves under the CA"},
		"no such server": {func(o *operated) { o.publishServer = "https://127.0.0.1:1" }, "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			o := publishes(t, cluster)
			row.set(o)
			var before, after corev1.ConfigMap
			_ = o.client.Get(t.Context(), clusterinfo.Key(), &before)
			err := o.publishClusterInfo(t.Context(), "")
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("got %v, want %s", err, row.want)
			}
			_ = o.client.Get(t.Context(), clusterinfo.Key(), &after)
			if before.ResourceVersion != after.ResourceVersion || o.out.Len() != 0 {
				t.Errorf("it was written: %q", &o.out)
			}
			if row.want == "exit status 3" && !strings.Contains(o.err.String(), "is not decided, and nothing was written") {
				t.Errorf("it says %q", &o.err)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// leafOf is the certificate of a cluster's server.
func leafOf(t *testing.T, cluster *bootstraptokentest.Cluster) *x509.Certificate {
	t.Helper()
	roots, err := cluster.Info().Roots()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", cluster.Address(), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// TestClusterInfoShow: the document, its signatures, and the answers to anonymous clients.
func TestClusterInfoShow(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	cluster.Intercept(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status := map[string]int{"/livez": http.StatusUnauthorized, "/version": http.StatusForbidden, "/readyz": http.StatusFound, "/healthz": http.StatusOK}[r.URL.Path]
			if r.Header.Get("Authorization") != "" {
				t.Error("a credential was sent")
			}
			if status == 0 {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Location", "/healthz") // of a redirect
			w.WriteHeader(status)
		})
	})
	o := publishes(t, cluster, publishedBy(cluster))
	ca := cluster.Info().CAs[0]
	want := "server            " + cluster.URL() + "\n" +
		"published by      another program, such as kubeadm: publish leaves it alone without --replace\n" +
		"CA                " + cluster.Info().Pins()[0].String() + ", " + ca.Subject.String() + ", ends " + ca.NotAfter.Format(time.RFC3339) + "\n" +
		"signed by tokens  " + cluster.Token().ID() + "\n" +
		"anonymous         cluster-info: can read it\n" +
		"anonymous         all of kube-public: 403, no right\n" +
		"anonymous         /version: 403, no right\n" +
		"anonymous         /livez: 401, no anonymous request is taken there\n" +
		"anonymous         /readyz: HTTP status 302\n" +
		"anonymous         /healthz: can read it\n"
	show := func() {
		t.Helper()
		if err := o.showClusterInfo(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		o.printed(t, want)
	}
	show()
	o.replace = true
	if err := o.publishClusterInfo(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	o.out.Reset()
	want = strings.Replace(want, "another program, such as kubeadm: publish leaves it alone without --replace", "nodeattest", 1)
	show()
	if err := cluster.Close(); err != nil {
		t.Fatal(err)
	}
	if err := o.showClusterInfo(t.Context(), ""); err != nil || !strings.Contains(o.out.String(), "anonymous         not known: ") {
		t.Errorf("a server that is away: %v, %s", err, &o.out)
	}
}

// TestClusterInfoVerify: a token from a file or standard input, which is never printed.
func TestClusterInfoVerify(t *testing.T) {
	cluster := bootstraptokentest.New(t, bootstraptokentest.Options{})
	token := cluster.Token().Reveal()
	_, secret, _ := strings.Cut(token, ".")
	o := publishes(t, cluster, publishedBy(cluster))
	o.in = strings.NewReader(token + "\n")
	ca := cluster.Info().CAs[0]
	for _, o.tokenFile = range []string{"-", written(t, token+"\n")} {
		if err := o.verifyClusterInfo(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		o.printed(t, "signed by token  "+cluster.Token().ID()+"\nserver           "+cluster.URL()+"\n"+
			"CA               "+cluster.Info().Pins()[0].String()+", "+ca.Subject.String()+", ends "+ca.NotAfter.Format(time.RFC3339)+"\n")
	}
	for name, row := range map[string]struct{ file, want string }{
		"no file":        {filepath.Join(t.TempDir(), "none"), "no such file"},
		"an empty file":  {written(t, ""), "bootstrap-token"},
		"a large file":   {written(t, strings.Repeat(secret, 100)), "more than 256 bytes"},
		"no token":       {written(t, secret), "bootstrap-token"},
		"another secret": {written(t, cluster.Token().ID()+"."+strings.Repeat("a", 16)), "cluster-info-signature"},
		"another ID":     {written(t, "zzzzzz."+secret), "cluster-info-no-signature"},
	} {
		t.Run(name, func(t *testing.T) {
			o.tokenFile = row.file
			if err := o.verifyClusterInfo(t.Context(), ""); err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, want %s without the secret", err, row.want)
			}
		})
	}
	if err := operates(t, "").showClusterInfo(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "publishes no discovery document") {
		t.Errorf("no document: got %v", err)
	}
}
