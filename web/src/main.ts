import { QueryClient, VueQueryPlugin } from '@tanstack/vue-query'
import { createApp } from 'vue'
import App from './app.vue'
import { createLanguages, firstLanguage, loadLanguage } from './i18n/languages'
import { leadToSignIn } from './page/caller'
import { usePreference } from './page/preferences'
import { router } from './router'
import './styles/page.css'

const queryClient = new QueryClient()
leadToSignIn(router, queryClient)
const language = firstLanguage(usePreference('language').value, navigator.languages)
// The router loads the page's code while the texts are loaded.
const app = createApp(App).use(router).use(VueQueryPlugin, { queryClient })
app.use(createLanguages(language, await loadLanguage(language))).mount('#app')
