package node

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// caFile is the name of the file with the cluster's CAs.
const caFile = "ca.crt"

// clusterFiles are the two files by which the authenticator finds its cluster: the CAs, and a kubeconfig
// that names them, with the bootstrap token.
type clusterFiles struct{ dir string }

// openFiles makes the folder if it is missing. It refuses one that other users can write to.
func openFiles(dir string) (clusterFiles, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return clusterFiles{}, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return clusterFiles{}, err
	}
	return clusterFiles{dir}, safefile.CheckWay(dir)
}

// A clusterFile is one of them.
type clusterFile struct {
	path    string
	content []byte
	access  safefile.Access
}

// write writes the files of a cluster, and says which. A file that is there and differs is only replaced
// if replace is set; then the other one is not written either.
func (c clusterFiles) write(w io.Writer, info *bootstraptoken.ClusterInfo, token bootstraptoken.Token, replace bool) error {
	var all []clusterFile
	ca := ""
	if !info.SystemRoots {
		ca = filepath.Join(c.dir, caFile)
		all = append(all, clusterFile{ca, certificatesPEM(info.CAs), safefile.Trusted})
	}
	kubeconfig, err := bootstrapKubeconfig(info.Server, ca, token)
	if err != nil {
		return err
	}
	all = append(all, clusterFile{filepath.Join(c.dir, filepath.Base(defaultKubeconfig)), kubeconfig, safefile.Private})
	var missing []clusterFile
	var differ error
	for _, f := range all {
		switch err := f.compare(); {
		case err == nil:
			if _, err := fmt.Fprintf(w, "unchanged: %s\n", f.path); err != nil {
				return err
			}
			continue
		case !errors.Is(err, fs.ErrNotExist) && (!errors.Is(err, safefile.CheckFile) || !replace):
			differ = errors.Join(differ, err)
		}
		missing = append(missing, f)
	}
	if differ != nil {
		return differ
	}
	for _, f := range missing { // the CAs first: the kubeconfig names them
		put := safefile.Create // which replaces no file that has just come
		if replace {
			put = safefile.Replace
		}
		if err := put(f.path, safefile.Content(f.content)); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		if _, err := fmt.Fprintf(w, "wrote: %s\n", f.path); err != nil {
			return err
		}
	}
	return nil
}

// compare returns nil if the file is there and is the same. The error matches fs.ErrNotExist if it is
// missing, and safefile.CheckFile if it differs or another user could have read or written it.
func (f clusterFile) compare() error {
	text, err := safefile.Read(f.path, configfile.MaxSize, f.access)
	if err == nil && !bytes.Equal(text, f.content) {
		err = &refusal.Error{Check: safefile.CheckFile, Got: "a file with other content", Want: "the same content, no file, or --replace"}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

// certificatesPEM writes CAs as one bundle.
func certificatesPEM(cas []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, ca := range cas {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}) // without headers, and to memory
	}
	return b.Bytes()
}

// bootstrapKubeconfig writes the authenticator's kubeconfig: the server, the file of its CAs, or "" for
// the system's roots, and the token, which may be the zero Token.
func bootstrapKubeconfig(server, ca string, token bootstraptoken.Token) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca}
	config.AuthInfos["bootstrap"] = &clientcmdapi.AuthInfo{Token: token.Reveal()}
	config.Contexts["bootstrap"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "bootstrap"}
	config.CurrentContext = "bootstrap"
	return clientcmd.Write(*config)
}
