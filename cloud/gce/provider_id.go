package gce

import (
	"context"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

const providerIDScheme = "gce"

// ProviderID is the provider ID that Kubernetes' cloud provider gives the machine's Node:
// gce://<project ID>/<zone>/<instance name>. If the inventory's begins with gce://, aws:// or
// azure:// it must be this one; where the inventory has none, package attest/membership vouches
// for it.
func (d *Details) ProviderID() string {
	return providerID(d.Instance.ProjectID, d.Instance.Zone, d.Instance.InstanceName)
}

func providerID(project, zone, instance string) string {
	return providerIDScheme + "://" + project + "/" + zone + "/" + instance
}

// ProviderID asks for the project ID, the zone and the instance's name, and returns the provider
// ID that Kubernetes' cloud provider gives the machine's Node, as [Details.ProviderID] does. It is only
// the node's claim: whatever poses as the metadata server can say something else. The
// error is a [*refusal.Error] with the check "metadata-server", which names the path.
func (s *Source) ProviderID(ctx context.Context) (string, error) {
	var project, zone, instance string
	for _, part := range []struct {
		path, want string
		valid      func(text string) bool
		into       *string
	}{
		{"project/project-id", "a project ID", validProject, &project},
		{"instance/zone", "projects/<number>/zones/<zone>", func(text string) bool {
			before, name, ok := strings.Cut(text, "/zones/")
			return ok && strings.HasPrefix(before, "projects/") && names.ValidLabel(name)
		}, &zone},
		{"instance/name", "an instance's name", names.ValidLabel, &instance},
	} {
		text, err := s.get(ctx, part.path, maxAnswerSize, nil)
		if err != nil {
			return "", err
		}
		if !part.valid(string(text)) {
			return "", metadata.CheckMetadata.Refuse(part.path+" "+refusal.Quote(string(text)), part.want)
		}
		*part.into = string(text)
	}
	return providerID(project, zone[strings.LastIndexByte(zone, '/')+1:], instance), nil
}

func validProject(id string) bool {
	_, err := parseIdentity(attest.Identity(identityKind + ":" + id + "/1"))
	return err == nil
}
