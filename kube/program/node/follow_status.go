package node

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// following is the daemon's record of its last refresh, for the command status.
type following struct {
	// Verified is when the cluster last confirmed its discovery document; LastAttempt and LastError are of
	// the last refresh.
	Verified    time.Time `json:"verified,omitzero"`
	LastAttempt time.Time `json:"lastAttempt,omitzero"`
	LastError   string    `json:"lastError,omitempty"`
}

func (r following) verified() string {
	if r.Verified.IsZero() {
		return "never"
	}
	return r.Verified.UTC().Format(time.RFC3339)
}

// note records and logs the result of a refresh. Each error is logged once.
func (f *follower) note(err error) {
	record := following{LastAttempt: f.network.Now().UTC().Truncate(time.Second)}
	if err != nil {
		record.LastError = err.Error()
	}
	if record.LastError != f.logged && err != nil {
		f.log.Warn("the cluster's discovery document was not refreshed; its CAs and server stay as they are", "kubeconfig", f.kubeconfig, "why", record.LastError)
	}
	f.logged = record.LastError
	text, err := json.Marshal(record)
	if err == nil {
		err = safefile.Replace(f.path(followingFile), safefile.Content(append(text, '\n')))
	}
	if err != nil {
		f.log.Warn("cannot record the refresh of the discovery document", "file", f.path(followingFile), "why", err.Error())
	}
}

// status returns the record, and the steps that are left to an administrator.
func (f *follower) status() (record following, problems []string) {
	if text, err := safefile.Read(f.path(followingFile), configfile.MaxSize, safefile.Private); err == nil {
		_ = json.Unmarshal(text, &record) // an unreadable record is replaced at the next refresh
	}
	var published string
	if cache, err := bootstraptoken.ReadCacheFile(f.path(cacheFile)); err == nil {
		record.Verified, published = cache.Verified, cache.Info.Server
	}
	if record.LastError != "" {
		problems = append(problems, "discovery: "+record.LastError)
	}
	o, err := readOwn(f.kubeconfig)
	if err != nil {
		if record.LastError == "" {
			problems = append(problems, "discovery: "+err.Error())
		}
		return record, problems
	}
	return record, append(problems, f.kubelet(o, published)...)
}

// kubelet compares the kubelet's kubeconfig with the authenticator's: the program never edits the kubelet's,
// nor restarts it. A kubelet since 1.36 reads a changed file of CAs by itself.
func (f *follower) kubelet(o *own, published string) (problems []string) {
	clusters, err := f.kubeletClusters()
	if err != nil {
		return []string{"discovery: an invalid kubeconfig " + f.kubeletConf + ": " + err.Error()}
	}
	for _, c := range clusters {
		if c.Server != o.server && o.server == published {
			problems = append(problems, fmt.Sprintf("discovery: the kubelet's %s names the API server %s, and the cluster's is %s: change it there and restart the kubelet",
				f.kubeletConf, refusal.Text(c.Server), o.server))
		}
		cas, err := bootstraptoken.ParseCAs(c.CertificateAuthorityData)
		where := f.kubeletConf
		if c.CertificateAuthority != "" && len(c.CertificateAuthorityData) == 0 {
			where = c.CertificateAuthority
			cas, err = readCAs(where)
		}
		if err == nil && !within(o.cas, cas) {
			problems = append(problems, fmt.Sprintf("discovery: the kubelet's %s lacks a CA of the cluster: add the CAs of %s to it, or set discovery.writeCA if it is %s",
				where, o.caFile, f.kubeadmCA))
		}
	}
	return problems
}

// kubeletClusters returns the cluster of the kubelet's kubeconfig, by its name; none if there is no kubelet yet.
func (f *follower) kubeletClusters() (map[string]*clientcmdapi.Cluster, error) {
	text, err := readFile(f.kubeletConf, configfile.MaxSize)
	if err != nil {
		return nil, nil //nolint:nilerr // there is no kubelet yet
	}
	config, err := clientcmd.Load(text)
	if err == nil {
		err = clientcmdapi.MinifyConfig(config)
	}
	if err != nil {
		return nil, err
	}
	return config.Clusters, nil
}
