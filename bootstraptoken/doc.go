// Package bootstraptoken holds the tokens with which a node first speaks to a cluster.
package bootstraptoken
