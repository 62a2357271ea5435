"""The hooks of CustomResourceDefinitions: names, versions, and what their schemas may say."""
