package node

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// own is the cluster in a kubeconfig's current context, as its files have it.
type own struct {
	path   string
	text   []byte
	config *clientcmdapi.Config
	server string
	caFile string
	cas    []*x509.Certificate
	proxy  *url.URL // nil: the environment's
}

// readOwn reads a kubeconfig and the file of its CAs. Its cluster must be one that a discovery document can
// describe: identified by the CAs of a file and the server's name.
func readOwn(path string) (*own, error) {
	text, err := readFile(path, configfile.MaxSize)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "an invalid kubeconfig " + path, Err: err}
	}
	o := &own{path: path, text: text, config: config}
	cluster := o.cluster()
	switch {
	case cluster == nil:
		return nil, refusal.Config("kubeconfig", path+", without a cluster in its current context", "one")
	case cluster.CertificateAuthority == "" || len(cluster.CertificateAuthorityData) != 0:
		return nil, refusal.Config("kubeconfig", path+", with the CAs inside or none", "certificate-authority: a file, which discovery keeps current")
	case cluster.TLSServerName != "" || cluster.InsecureSkipTLSVerify:
		return nil, refusal.Config("kubeconfig", path+", with tls-server-name or insecure-skip-tls-verify", "a server that its own name and CA identify")
	}
	if err := checkProxy(cluster.ProxyURL); err != nil {
		return nil, err
	}
	if cluster.ProxyURL != "" {
		if o.proxy, err = url.Parse(cluster.ProxyURL); err != nil {
			return nil, err
		}
	}
	o.server, o.caFile = cluster.Server, cluster.CertificateAuthority
	if !filepath.IsAbs(o.caFile) {
		o.caFile = filepath.Join(filepath.Dir(path), o.caFile)
	}
	o.cas, err = readCAs(o.caFile)
	return o, err
}

// cluster returns the cluster of the current context, or nil.
func (o *own) cluster() *clientcmdapi.Cluster {
	if in := o.config.Contexts[o.config.CurrentContext]; in != nil {
		return o.config.Clusters[in.Cluster]
	}
	return nil
}

// unchanged refuses to write over files that an operator has replaced since the cluster was asked: the
// answer is about another cluster. cas are the CAs that its file had.
func (o *own) unchanged(cas []*x509.Certificate) error {
	now, err := readOwn(o.path)
	if err == nil && (!bytes.Equal(now.text, o.text) || !within(now.cas, cas) || !within(cas, now.cas)) {
		err = refusal.Retry(fmt.Errorf("%s or its CA file has changed while the cluster was asked, and is left alone", o.path))
	}
	return err
}

// network returns how the API server is reached.
func (o *own) network(n bootstraptoken.Network) bootstraptoken.Network {
	if o.proxy != nil {
		n.Proxy = http.ProxyURL(o.proxy)
	}
	return n
}

func readCAs(path string) ([]*x509.Certificate, error) {
	text, err := readFile(path, configfile.MaxSize)
	if err != nil {
		return nil, err
	}
	cas, err := bootstraptoken.ParseCAs(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cas, nil
}

// inUse returns the CAs of the files that writeCAs writes, and the kubelet's servers.
func (f *follower) inUse(o *own) (cas []*x509.Certificate, servers []string, err error) {
	cas = o.cas
	if f.writeCA {
		kubeadms, err := readCAs(f.kubeadmCA)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		cas = slices.Concat(cas, kubeadms)
	}
	clusters, _ := f.kubeletClusters() // the command status reports the error
	for _, c := range clusters {
		servers = append(servers, c.Server)
	}
	return cas, servers, nil
}

// writeCAs writes the CAs into the kubeconfig's file and, with writeCA, into kubeadm's if that is there.
func (f *follower) writeCAs(o *own, cas []*x509.Certificate) error {
	if err := f.writeCAFile(o.caFile, o.cas, cas); err != nil || !f.writeCA {
		return err
	}
	old, err := readCAs(f.kubeadmCA)
	if errors.Is(err, fs.ErrNotExist) { // kubeadm join refuses a file that is there
		return nil
	}
	if err != nil {
		return err
	}
	return f.writeCAFile(f.kubeadmCA, old, cas)
}

// writeCAFile replaces a file with CAs if those are others. kubeadm's is never replaced on a machine of the
// control plane: there it is also kube-apiserver's --client-ca-file, and a writer of the discovery document
// who adds a CA would be every user of the cluster.
func (f *follower) writeCAFile(path string, old, next []*x509.Certificate) error {
	if within(old, next) && within(next, old) {
		return nil
	}
	apiServer := filepath.Join(filepath.Dir(f.kubeadmCA), "apiserver.crt") // on machines of the control plane
	switch kubeadms := sameFile(path, f.kubeadmCA); {
	case kubeadms && !f.writeCA:
		return refusal.Config("discovery.writeCA", "false, and the cluster has new CAs, and "+f.kubeconfig+" names kubeadm's "+path,
			"true, or a certificate-authority of its own, such as kubelet-authenticator discover writes")
	case kubeadms && exists(apiServer):
		return refusal.Config("discovery.writeCA", "true, with new CAs, and there is "+apiServer+": kube-apiserver takes each user that a CA in "+path+" names",
			"false on a machine of the control plane, and the CAs by an administrator")
	}
	if err := replace(path, certificatesPEM(next)); err != nil {
		return err
	}
	f.log.Info("replaced the cluster's CAs", "file", path, "before", pins(old), "now", pins(next))
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

func pins(cas []*x509.Certificate) string {
	return fmt.Sprint((&bootstraptoken.ClusterInfo{CAs: cas}).Pins())
}

// move writes the cluster's new server into the kubeconfig, once that server answers.
func (f *follower) move(ctx context.Context, network bootstraptoken.Network, o *own, to *bootstraptoken.ClusterInfo) error {
	if err := probe(ctx, network, to.Server, to.CAs); err != nil {
		return fmt.Errorf("the cluster's new server %s is not used yet: %w", to.Server, err)
	}
	if err := o.unchanged(to.CAs); err != nil {
		return err
	}
	o.cluster().Server = to.Server
	text, err := clientcmd.Write(*o.config)
	if err != nil {
		return err
	}
	if err := replace(o.path, text); err != nil {
		return err
	}
	f.log.Info("the cluster's API server has another address", "file", o.path, "before", o.server, "now", to.Server)
	return nil
}

// replace replaces a file that is there, and keeps its mode. The path may be a link, and no
// other user may be able to put another one there.
func replace(path string, content []byte) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(target)
	for _, file := range []string{path, target} {
		if err == nil {
			err = safefile.CheckWay(filepath.Dir(file))
		}
	}
	if err == nil {
		err = safefile.Replace(target, func(file *os.File) error {
			_, err := file.Write(content)
			return errors.Join(err, file.Chmod(info.Mode().Perm()&^0o022))
		})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
