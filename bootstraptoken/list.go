package bootstraptoken

// List decodes the token Secrets among objects, in their order, for a view. objects may be
// all Secrets of the cluster: those that are not of [SecretType] in [Namespace] are passed
// over. Those that [Decode] refuses are in refused, with the reason. An expired token is
// listed like another. (kubeadm token list shows tokens that kube-apiserver refuses, and
// usages that no component knows.)
func List(objects []*Object) (secrets []*Secret, refused []Refusal) {
	for _, o := range objects {
		if !isTokenSecret(o) {
			continue
		}
		s, err := Decode(o)
		if err != nil {
			refused = append(refused, Refusal{Name: o.Name, Err: err})
			continue
		}
		secrets = append(secrets, s)
	}
	return secrets, refused
}

func isTokenSecret(o *Object) bool {
	return o != nil && o.Namespace == Namespace && o.Type == SecretType
}

// Refusal is an object that was not taken, and why.
type Refusal struct {
	// Name is the object's name.
	Name string
	// Err is an [*Error].
	Err error
}
