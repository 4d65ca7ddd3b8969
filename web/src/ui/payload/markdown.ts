/** Markdown of models, rendered without HTML and without loading anything. A chunk of its own. */
import MarkdownIt from 'markdown-it'

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: true })

markdown.validateLink = (url) => /^(https?:|mailto:|#)/i.test(url.trim())

// Loading a picture would reveal the reader to its server: its text and address are shown instead.
markdown.renderer.rules['image'] = (tokens, at) => {
  const token = tokens[at]!
  const address = markdown.utils.escapeHtml(String(token.attrGet('src') ?? ''))
  return `<span class="image">${markdown.utils.escapeHtml(token.content)} (${address})</span>`
}

markdown.renderer.rules['link_open'] = (tokens, at, options, _, renderer) => {
  const token = tokens[at]!
  token.attrSet('target', '_blank')
  token.attrSet('rel', 'noopener noreferrer nofollow')
  token.attrSet('title', token.attrGet('href') ?? '')
  return renderer.renderToken(tokens, at, options)
}

// The page's policy forbids styles in attributes, by which cells of tables are aligned.
markdown.core.ruler.push('alignment', ({ tokens }) => {
  for (const token of tokens) {
    const alignment = /text-align:(\w+)/.exec(String(token.attrGet('style') ?? ''))?.[1]
    token.attrs = token.attrs?.filter(([name]) => name !== 'style') ?? null
    if (alignment) token.attrSet('class', `align-${alignment}`)
  }
})

/**
 * Blocks whose direction is that of their own text: an answer may quote another script. The blocks in
 * them have none of their own, because `auto` ignores the text of elements that have one.
 */
const BLOCKS = new Set([
  'paragraph_open',
  'heading_open',
  'bullet_list_open',
  'ordered_list_open',
  'blockquote_open',
  'table_open',
])

markdown.core.ruler.push('direction', ({ tokens }) => {
  for (const token of tokens)
    if (token.level === 0 && BLOCKS.has(token.type)) token.attrSet('dir', 'auto')
})

export function renderMarkdown(text: string): string {
  return markdown.render(text)
}
